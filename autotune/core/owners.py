"""Whose a folder is: what others can write there is their code, run with the rights of whoever uses it."""

import grp
import os
import pwd
import stat
from pathlib import Path

_ROOT = 0


def others_in(path: Path) -> str:
    """Who else than this user and root can write a file or folder: `its owner alice`; empty where nobody can.

    Raises:
        OSError: it cannot be looked at.
    """
    status = path.stat()
    if status.st_uid not in (os.geteuid(), _ROOT):
        return f"its owner {user_name(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, status.st_uid):
        return f"the group {_group_name(status.st_gid)}"
    return ""


def user_name(uid: int) -> str:
    """The name of an account, or its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _is_private(gid: int, uid: int) -> bool:
    """Whether a group is one user's own, as many systems give each of theirs one; root's is."""
    if gid == _ROOT:
        return True
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
