"""A site with Django's admin, and people who are signed in to it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client, override_settings

SITE = {
    "ROOT_URLCONF": "tests.admin.urls",
    "STATIC_URL": "static/",
    "MIDDLEWARE": [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    "TEMPLATES": [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
}


@pytest.fixture(scope="package", autouse=True)
def _admin_site() -> Iterator[None]:
    with override_settings(**SITE):
        yield


@pytest.fixture(autouse=True)
def _nothing_cached() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def operator(db: None) -> Callable[..., Client]:
    """A browser signed in as a member of staff with just these permissions; ``operator("view_task")``."""
    from django.contrib.auth.models import Permission, User

    def make(*permissions: str, name: str = "operator", **attributes: Any) -> Client:
        user = User.objects.create_user(name, **{"is_staff": True, **attributes})
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def superuser(operator: Callable[..., Client]) -> Client:
    """A browser signed in as somebody who may do everything."""
    return operator(name="root", is_superuser=True)
