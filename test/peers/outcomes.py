"""What every script says: one JSON object a line, which the driver reads."""

import json
import traceback


def say(case, outcome, detail=None):
    print(json.dumps({"case": case, "outcome": outcome, "detail": detail or ""}), flush=True)


def check(case, work):
    """Runs one check. `work` returns None or a figure worth printing, or raises."""
    try:
        say(case, "passed", work())
    except AssertionError as error:
        say(case, "failed", str(error))
    except Exception as error:  # the tool itself cannot read it: that is a difference too
        last = traceback.extract_tb(error.__traceback__)[-1]
        name = last.filename.rsplit("/", 1)[-1]
        say(case, "failed", f"{type(error).__name__}: {error} ({name}:{last.lineno})"[:500])


def expect(holds, what):
    if not holds:
        raise AssertionError(what)
