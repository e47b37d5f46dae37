"""Which keys and strings are secret, and which only look a little like it."""

import time

import pytest

from mcp_tasks.operators.masking import Rules, password_paths, rules_for, words

BEARER = "Bearer c2VjcmV0LXZhbHVl"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"

SECRET_KEYS = """
    password passwd passphrase secret token apiKey api_key api-key api.key APIKey apikey API_KEY authorization
    Proxy-Authorization cookie Set-Cookie credential credentials private_key privateKey PrivateKeyPem session sessionId
    sessionid otp OTP OTPcode pin userPIN PINCode pin_code iban ssn PASSWORD passWord pass_word user.password
    user_password2 db-passwords accessToken access_tokens csrfmiddlewaretoken X-CSRFToken JSESSIONID progressToken
    aws_secret_access_key headers[Authorization] $.card.pin
""".split()  # noqa: SIM905
READABLE_KEYS = """
    spin spinner opinion pinned mySpin MYSpin shopping max_tokens maxTokens max-tokens tokenizer tokenize secretary
    passenger compass cookiecutter author authorized api key keyboard private keys api_version monkey obsession
    libane p_in s_sn hotplug credo Anspinnen options name value
""".split()  # noqa: SIM905


@pytest.mark.parametrize(
    "key", [*SECRET_KEYS, "\uff50\uff41\uff53\uff53word", "pass\u200bword", "api key", "password: "]
)
def test_a_key_with_a_secret_word_hides_its_value_whatever_that_is(key: str) -> None:
    assert rules_for().hides(key)
    assert rules_for().hides(key, number=True)


@pytest.mark.parametrize("key", [*READABLE_KEYS, "", " ", "_", "💥", "\ud800", "schlüssel"])
def test_a_word_inside_another_word_hides_nothing(key: str) -> None:
    assert not rules_for().hides(key)


@pytest.mark.parametrize(
    "key", ["token_count", "tokens", "totalTokens", "input_tokens", "session_timeout", "token_ttl", "tokens_used"]
)
def test_a_number_of_tokens_or_sessions_stays_readable(key: str) -> None:
    assert not rules_for().hides(key, number=True)


@pytest.mark.parametrize("key", ["token_count", "tokens", "session_timeout", "token_limit"])
def test_what_should_be_a_number_of_tokens_and_is_none_is_hidden(key: str) -> None:
    assert rules_for().hides(key)


@pytest.mark.parametrize(
    ("sensitive", "hidden", "readable"),
    [
        (["salary"], ["salary", "baseSalary", "max_salary", "salaries_salarys"], ["salaried", "wage"]),
        (
            ["card_number"],
            ["card_number", "cardNumber", "card-number", "cardnumber", "myCardNumbers"],
            ["card", "number"],
        ),
        (["date of birth"], ["dateOfBirth", "x_date_of_birth"], ["date_of", "birth", "date"]),
        (["contraseña"], ["contraseña", "miContraseña", "CONTRASEÑA", "contrasen\u0303a"], ["contra"]),
        (["tokens"], ["tokens", "max_tokens"], ["tokenizer"]),
        (["token"], ["token_count", "tokens"], ["tokenizer"]),
        (["", "_", "**"], ["password"], ["", "_", "name"]),
    ],
)
def test_a_project_adds_words(sensitive: list[str], hidden: list[str], readable: list[str]) -> None:
    rules = Rules(sensitive)
    assert [key for key in hidden if not rules.hides(key, number=True)] == []
    assert [key for key in readable if rules.hides(key, number=True)] == []


def test_rules_are_compiled_once_for_the_same_words() -> None:
    assert rules_for(["a", "b"]) is rules_for({"b", "a"})
    assert rules_for() is rules_for([])


def test_keys_are_remembered_within_bounds() -> None:
    rules = Rules()
    for number in range(10_000):
        assert rules.hides(f"pin_{number}")
    rules.hides("pin" * 1000)
    assert len(rules._known) <= 4096
    assert max(map(len, rules._known)) <= 64


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("apiKey", ["api", "key"]),
        ("APIKey", ["api", "key"]),
        ("HTTPServer2URL", ["http", "server", "2", "url"]),
        ("a_b-c.d e", ["a", "b", "c", "d", "e"]),
        ("über_Maß", ["über", "mass"]),
        ("", []),
    ],
)
def test_keys_are_parted_into_words(key: str, expected: list[str]) -> None:
    assert words(key) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Bearer x",
        "  bearer abc",
        BEARER,
        f"curl -H 'Authorization: {BEARER}' https://example.com",
        "sent authorization: bearer abc to them",
        "use bearer s3cret there",
        JWT,
        f"got {JWT}, stored",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
        "text\n-----BEGIN CERTIFICATE-----",
        "https://user:pass@example.com/",
        "postgres://app:hunter2@db:5432/app",
        "redis://:hunter2@cache",
        "see https://user:pass@example.com or not",
        "https://example.com/?token=abc",
        "https://example.com/?a=1&access_token=abc#x",
        "https://example.com/cb#id_token=abc",
        "/relative?apiKey=abc",
        "https://example.com/?to%6ben=abc",
        "https://example.com/?page=2&amp;session=abc",
        "client_secret=abc&grant_type=x",
        "theme=dark; sessionid=abc",
        '{"password": "x"}',
        '[{"a": {"api_key": "x"}}]',
        '{"pass\\u0077ord": "x"}',
        '{"a": "{\\"password\\": \\"x\\"}"}',
        '{"a": "{\\"b\\": \\"{\\\\\\"password\\\\\\": 1}\\"}"}',
        '{"a": "{\\u0022password\\u0022: 1}"}',
        '{"a": "https:\\/\\/user:pass@example.com"}',
        '{"name": "Authorization", "value": "x"}',
        '{"value": "x", "name" : "Set-Cookie"}',
        '{"a": "{\\"name\\": \\"Authorization\\", \\"value\\": \\"x\\"}"}',
        'data: {"password": "cut he',
        "{'password': 'x'}",
        "\\u005c" * 3 + "\\u005cu005cu005cu005cu005cu0041",
    ],
)
def test_a_string_that_looks_like_a_secret_is_hidden(text: str) -> None:
    assert rules_for().looks_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Bearer",
        "the bearer of this letter",
        "Bearer bonds are old",
        "forbearers and bearers",
        "eyJ is how it begins",
        "eyJhbGciOiJIUzI1NiJ9",
        "-----END",
        "https://example.com:8080/path?email=a@example.com",
        "https://example.com/@user:page",
        "https://user@example.com/",
        "mailto:a@example.com",
        "https://example.com/?max_tokens=5&spin=1&page=2",
        "https://example.com/?token=",
        "https://example.com/?token_count=5",
        "a = b; token = none",
        '{"spin": 1, "max_tokens": 5, "token_count": 5}',
        '{"name": "x", "value": "y"}',
        '{"name": "Authorization"}',
        "he said: 'password' and \"secret\"",
        "C:\\users\\pin: 3",
        "\\\\server\\share",
    ],
)
def test_an_ordinary_string_is_not(text: str) -> None:
    assert not rules_for().looks_secret(text)


def test_json_in_a_string_is_judged_by_the_words_of_the_project() -> None:
    assert Rules(["salary"]).looks_secret('{"salary": 5}')
    assert not Rules().looks_secret('{"salary": 5}')


@pytest.mark.parametrize(
    "piece",
    [
        *"""\\ \\\\u005c " ": ': eyJ eyJa. bearer ://a: ://a:b@c &a=b &a =; pin_ spinA -----BEGIN \\u0041""".split(),  # noqa: SIM905
        "bearer ",
        '" ',
    ],
)
def test_no_text_takes_more_than_linear_time(piece: str) -> None:
    rules = Rules()
    text = piece * (400_000 // len(piece))
    started = time.process_time()
    rules.looks_secret(text)
    rules.hides(text)
    assert time.process_time() - started < 2  # by two orders less than a square would take


# -- fields of a requested schema -----------------------------------------------------------------------------------

PASSWORD = {"type": "string", "format": "password"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"properties": {"a": PASSWORD, "b": {"type": "string"}, "c": {"format": "email"}}}, {("content", "a")}),
        ({"properties": {"a": {"properties": {"b": PASSWORD}}}}, {("content", "a", "b")}),
        ({"properties": {"a": {"type": "array", "items": PASSWORD}}}, {("content", "a")}),
        ({"properties": {"a": {"items": {"properties": {"b": PASSWORD}}}}}, {("content", "a")}),
        ({"properties": {"a": {"prefixItems": [{}, PASSWORD]}}}, {("content", "a")}),
        ({"properties": {"a": {"additionalProperties": PASSWORD}}}, {("content", "a")}),
        ({"patternProperties": {"^x": PASSWORD}}, {("content",)}),
        ({"properties": {"a": {"anyOf": [{"type": "null"}, PASSWORD]}}}, {("content", "a")}),
        ({"allOf": [{"properties": {"a": PASSWORD}}]}, {("content", "a")}),
        ({"dependentSchemas": {"x": {"properties": {"a": PASSWORD}}}}, {("content", "a")}),
        ({"properties": {"a": {"$ref": "#/$defs/p"}}, "$defs": {"p": PASSWORD}}, {("content", "a")}),
        ({"properties": {"a": {"$ref": "#/$defs/x~1y%20z"}}, "$defs": {"x/y z": PASSWORD}}, {("content", "a")}),
        ({"properties": {"a": {"$ref": "#/anyOf/1"}}, "anyOf": [{}, PASSWORD]}, {("content",), ("content", "a")}),
        ({"properties": {"a": {"$ref": "#anchor"}, "b": {"$ref": "#/nowhere"}}}, {("content", "a"), ("content", "b")}),
        ({"$defs": {"p": PASSWORD}}, set()),
        ({"properties": {"format": {"const": "password"}}}, set()),
        ({"properties": {"a": True, "b": 3, "c": None}}, set()),
        ({"properties": []}, set()),
        ("no schema", set()),
        (None, set()),
        (True, set()),
    ],
)
def test_password_fields_of_a_requested_schema(schema: object, expected: set[tuple[str, ...]]) -> None:
    assert password_paths(schema) == expected


def test_the_paths_may_begin_elsewhere() -> None:
    assert password_paths({"properties": {"a": PASSWORD}}, root=()) == {("a",)}


def test_a_schema_that_refers_to_itself_without_end_hides_everything() -> None:
    looping = {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}
    assert password_paths(looping) == {("content",)}
    assert password_paths({"$ref": "#"}) == frozenset()
