"""
Reads of the hot path: a query built by Django once, and from then on only executed.

Building the same query for every poll costs several times what the database takes to answer it.
"""

from collections.abc import Callable
from typing import Any

from django.db import connections

from .. import conf


class PreparedRead:
    """
    The first row of a query whose parameters change and whose text does not.

    ``build`` makes the query for an alias from sample values of its parameters, a ``values()`` queryset. The
    samples must be distinct from everything else that the query compares with.
    """

    def __init__(self, build: Callable[..., Any], **samples: Any) -> None:
        self._build = build
        self._samples = samples
        self._made: dict[str, _Statement] = {}
        conf.on_reset(self._made.clear)

    def first(self, using: str, **values: Any) -> dict[str, Any] | None:
        """The row as a dict of the query's names, converted as Django converts; None when there is none."""
        statement = self._made.get(using)
        if statement is None:
            statement = self._made[using] = _Statement(self._build(using, **self._samples), using, self._samples)
        return statement.first(using, values)


class _Statement:
    def __init__(self, query: Any, using: str, samples: dict[str, Any]) -> None:
        connection = connections[using]
        compiler = query[:1].query.get_compiler(using)
        self._sql, self._params = compiler.as_sql()
        self._adapt = {name: query.model._meta.get_field(name).get_db_prep_value for name in samples}
        sent = {self._adapt[name](sample, connection): name for name, sample in samples.items()}
        self._places = {index: sent[value] for index, value in enumerate(self._params) if _known(value, sent)}
        names = [*query.query.values_select, *query.query.annotation_select]
        self._names = tuple(names)
        self._converters = compiler.get_converters([column[0] for column in compiler.select])

    def first(self, using: str, values: dict[str, Any]) -> dict[str, Any] | None:
        connection = connections[using]
        params = list(self._params)
        for index, name in self._places.items():
            params[index] = self._adapt[name](values[name], connection)
        with connection.cursor() as cursor:
            cursor.execute(self._sql, params)
            row = cursor.fetchone()
        if row is None:
            return None
        columns = list(row)
        for index, (converters, expression) in self._converters.items():
            for convert in converters:
                columns[index] = convert(columns[index], expression, connection)
        return dict(zip(self._names, columns, strict=True))


def _known(value: Any, sent: dict[Any, str]) -> bool:
    try:
        return value in sent
    except TypeError:  # unhashable parameters are none of ours
        return False
