"""A link we will not touch, and why."""

import msgspec


class Refused(msgspec.Struct, frozen=True):
    """Not a link to follow. The reason is for people: one short clause."""

    reason: str
