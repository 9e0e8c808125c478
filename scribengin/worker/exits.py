"""The exit codes of a worker, for its master and for people."""

from __future__ import annotations

OK = 0
"""It was removed, or told to end, and has given everything back."""
FAILED = 1
"""An error, which is the last thing in its log. Where the config is to blame it is 2, as everywhere."""
SESSION_LOST = 75
"""Its registry session expired, so its tasks are somebody else's; a new worker takes its place."""
