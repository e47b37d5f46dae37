"""Users of the demo site and their tokens."""

import secrets

from django.contrib.auth import get_user_model
from rest_framework.authtoken.models import Token

USERS = ("alice", "bob")
OPERATOR = "admin"


def tokens() -> dict[str, str]:
    """The API token of each user, made with the user on first use."""
    found = {}
    for name in USERS:
        user, _ = get_user_model().objects.get_or_create(username=name)
        token, _ = Token.objects.get_or_create(user=user)
        found[name] = str(token.key)
    return found


def reset_operator() -> str:
    """A superuser with a new password each time; returns the password."""
    password = secrets.token_urlsafe(12)
    user, _ = get_user_model().objects.get_or_create(username=OPERATOR)
    user.is_staff = user.is_superuser = True
    user.set_password(password)
    user.save()
    return password
