"""openapi-python-client: a client of each document without a warning, and a call of every operation
with it."""

import base64
import importlib
import json
import os
import re
import subprocess
import sys
import typing
import uuid
from enum import Enum
from pathlib import Path

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from openapi_python_client.strings import PythonIdentifier, snake_case  # noqa: E402
from outcomes import check, expect, say  # noqa: E402

services = json.loads(Path(sys.argv[1]).read_text())
folder = Path(sys.argv[1]).parent / "python-clients"
folder.mkdir(exist_ok=True)
sys.path.insert(0, str(folder))
own_programs = Path(sys.executable).parent
environment = {**os.environ, "PATH": f"{own_programs}:{os.environ['PATH']}"}  # ruff is there

SUBJECT = re.compile(
    r"^(?:(?:WARNING|ERROR) parsing (?P<operation>\S+ \S+) within"
    r"|Unable to (?:process|parse) (?P<part>schema|parameter|response)s? (?P<name>\S+?):?$)"
)


def warnings(output):
    """What the generator complains of, by the operation or schema: the first words about each."""
    found, subject = {}, None
    for line in output.splitlines():
        match = SUBJECT.match(line.strip())
        if match:
            subject = match["operation"] or f"{match['part']} {match['name'].rsplit('/', 1)[-1]}"
        elif subject and line.strip() and subject not in found:
            # Its own objects are printed with their addresses.
            found[subject] = re.sub(r"<[\w.]+ object at 0x\w+>", "…", line.strip())
    return found


def generate(service):
    name = service["name"]
    case = f"contract/openapi-python-client/{name}"
    ended = subprocess.run(
        [
            *(own_programs / "openapi-python-client", "generate", "--path", service["document"]),
            *("--output-path", folder / f"{name}_client", "--overwrite", "--meta", "none"),
        ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    complaints = warnings(ended.stdout)
    is_unread = "Warning" in ended.stdout and not complaints
    if ended.returncode != 0 or is_unread:
        say(f"{case}/generate", "failed", ended.stdout[-1500:])
    elif not complaints:
        say(f"{case}/generate", "passed")
    for subject, words in complaints.items():
        say(f"{case}/{subject}", "failed", words[:300])
    check(f"{case}/call", lambda: CALLS[name](service))
    for call in service["calls"]["python"]:
        label = f"{case}/call/{call['name']}"
        if call["skipped"]:
            say(label, "skipped", call["skipped"])
        else:
            check(label, lambda: make(service, call))


def converted(hint, value):
    """A value of JSON as the type that a generated function takes."""
    for kind in typing.get_args(hint) or (hint,):
        if kind is uuid.UUID:
            return uuid.UUID(value)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return kind(value)
        if hasattr(kind, "from_dict"):
            return kind.from_dict(value)
    return value


def field(text):
    """A field of a form as its class takes it: JSON is an object there."""
    return json.loads(text) if text and text.startswith("{") else text


def make(service, call):
    """Makes a call; an answer that the document does not know, or cannot be read, raises."""
    operation = snake_case(call["operationId"])
    tag = PythonIdentifier(call["tag"], "tag")
    function = module(service, f"api.{tag}.{operation}").sync_detailed
    hints = typing.get_type_hints(function)
    values = {PythonIdentifier(key, ""): value for key, value in (call["path"] | call["query"]).items()}
    if call["form"]:
        kind = re.search("(image|archive)s?$", call["name"])
        kind = kind[1] if kind else "video"
        sent = base64.b64decode(service["files"][kind])
        files = {name: field(value) or sent for name, value in call["form"].items()}
        values["body"] = {name: [file] if name == "files" else file for name, file in files.items()}
    elif "body" in call:
        values["body"] = call["body"]
    client = module(service, "client").Client(
        base_url=service["url"], headers=call["headers"], raise_on_unexpected_status=True
    )
    if "client" in hints and hints["client"] is module(service, "client").AuthenticatedClient:
        [(header, value)] = call["headers"].items()
        client = module(service, "client").AuthenticatedClient(
            base_url=service["url"],
            token=value,
            prefix="",
            auth_header_name=header,
            raise_on_unexpected_status=True,
        )
    values = {key: converted(hints[key], value) for key, value in values.items()}
    if call["form"]:
        for name in call["form"]:
            made = getattr(values["body"], PythonIdentifier(name, ""))
            for file in made if isinstance(made, list) else [made]:
                if hasattr(file, "payload"):
                    file.file_name = "crossing.mp4"
    reply = function(client=client, **values)
    answer = f"{reply.status_code} {reply.content[:300]}"
    refused = (400, 401, 422) if call["headers"] else (400, 422)
    expect(reply.status_code not in refused, answer)


def module(service, path):
    return importlib.import_module(f"{service['name']}_client.{path}")


def call_markets(service):
    client = module(service, "client").AuthenticatedClient(
        base_url=service["url"],
        token=service["auth"]["apiKey"]["api_key"],
        prefix="",
        auth_header_name="X-API-Key",
    )
    read_series = module(service, "api.series.read_series")
    reply = read_series.sync_detailed(client=client, library="power.demand", symbol="erco")
    expect(reply.status_code == 200, f"{reply.status_code} {reply.content[:300]}")
    rows = reply.parsed
    expect(len(rows) == 48, f"{len(rows)} rows")
    expect((rows[0].value, rows[7].value) == (40000.0, None), f"{rows[0].value} {rows[7].value}")


def call_console(service):
    client = module(service, "client").AuthenticatedClient(
        base_url=service["url"], token=service["auth"]["operatorToken"]["bearer"]
    )
    reply = module(service, "api.jobs.list_jobs").sync_detailed(client=client)
    expect(reply.status_code == 200, f"{reply.status_code} {reply.content[:300]}")
    expect(reply.parsed is not None, "the answer was not parsed")


def call_vision(service):
    client = module(service, "client").AuthenticatedClient(
        base_url=service["url"], token=service["auth"]["accessToken"]["bearer"]
    )
    reply = module(service, "api.accounts.read_account").sync_detailed(client=client)
    expect(reply.status_code == 200, f"{reply.status_code} {reply.content[:300]}")
    expect(reply.parsed.email.endswith("@example.com"), f"{reply.parsed}")


CALLS = {"markets": call_markets, "console": call_console, "vision": call_vision}
for service in services:
    generate(service)
