"""Passwords in database URLs: they are never shown, whatever is shown of a URL and however malformed it is."""

import re

HIDDEN = "***"

_AFTER_USER = re.compile(r"(?P<before>\w:?/{1,3}[^\s:/@'\"]*:)[^\s'\"]*(?=@)")
_IN_QUERY = re.compile(r"(?P<before>\b(?:ssl)?pass(?:word|wd)?=)[^\s&;,'\"]+", re.IGNORECASE)
_SCHEME = r"(?:postgres(?:ql)?|mysql|mariadb|mssql|oracle|sqlite|cockroachdb)"
_MEANT_FOR_URL = re.compile(
    rf"{_SCHEME}(?:\+\w+)?(?::|//)|{_SCHEME}\+\w+/|\w[\w+.-]*:?/{{1,2}}[^/\s:]*:[^\s]*@", re.IGNORECASE
)


def hidden(text: str) -> str:
    """The text with the passwords of all URLs in it hidden: after a user's name, and in a query.

    What stands between the user's `:` and the last `@` of a word counts as one: passwords hold `@` and `/` by mistake.
    """
    return _IN_QUERY.sub(rf"\g<before>{HIDDEN}", _AFTER_USER.sub(rf"\g<before>{HIDDEN}", text))


def resembles_url(text: str) -> bool:
    """Whether a text without `://` was meant for a URL: a database's scheme, or a user and a password before a host."""
    return _MEANT_FOR_URL.match(text) is not None
