"""No data leaves a run through links, and no secret through a title, a file name, the ledger's
export or the end of stderr.
"""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pytest

from reprokit.agent.record import exceptions
from reprokit.core.judge import signature
from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.shared.contract import events
from reprokit.core.shared.contract.event_base import ChainLink
from reprokit.host.pack import writer
from reprokit.host.request.target import parse_command
from reprokit.host.run import output
from reprokit.host.run.output import BoundedLog
from reprokit.host.system import private_names
from tests.support.planted_secrets import LETTERS, make_password, shows_secret


def token(chance: random.Random) -> str:
    return "ghp_" + "".join(chance.choice(LETTERS) for _ in range(36))


def test_no_link_of_a_run_directory_is_followed(tmp_path: Path) -> None:
    """A target may create links in its run directory: neither a linked folder nor a linked file is
    packed.
    """
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run-001"
    elsewhere.mkdir()
    (elsewhere / "notes.txt").write_text("nobody's business\n")
    (run / "logs").mkdir(parents=True)
    (run / "graphs").mkdir()
    (run / "logs" / "stdout.txt").write_text("hello\n")
    (run / "stacks").symlink_to(elsewhere)
    (run / "logs" / "more").symlink_to(elsewhere)
    (run / "logs" / "linked.txt").symlink_to(elsewhere / "notes.txt")
    (run / "graphs" / "0001").symlink_to(elsewhere)
    draft = writer.gather_files(run, Redactor())
    assert [*draft.files] == ["logs/stdout.txt"]
    assert [row.what for row in draft.missing] == ["stacks"]


def test_a_file_name_shows_no_secret(tmp_path: Path) -> None:
    """The names of a pack's files, of the tarball and of its run come from the target's command."""
    secret = token(random.Random(1))
    run = tmp_path / "run-001"
    (run / "kernels").mkdir(parents=True)
    (run / "kernels" / f"{secret}.py").write_text("x = 1\n")
    assert not any(
        shows_secret(name, secret) for name in writer.gather_files(run, Redactor()).files
    )
    script = tmp_path / f"train_{secret}.py"
    script.write_text("")
    assert not shows_secret(parse_command(("true", str(script))).label, secret.removeprefix("ghp_"))


@pytest.mark.parametrize(
    "form",
    [
        "cannot use {s} here",
        "bad login: password={s}, try again",
        "\x1b[31mno\x1b[0m {s}",
        "url https://u:{s}@h/x",
    ],
)
def test_a_title_shows_no_secret(form: str) -> None:
    """A title and its explanation are made from a message without its secrets, because blanked
    digits hide nothing.
    """
    secret = token(random.Random(form))
    titles = []
    for value in (secret, token(random.Random(2))):
        raised = private_names.redact_raised(Raised((Link("RuntimeError", form.format(s=value)),)))
        signed = signature.sign_verdict(
            Verdict("exception", "aot", None, ""),
            Observation(raised=raised, compile_failures=(raised,)),
        )
        titles.append(signed.title)
        for piece in (value, "".join("#" if c.isdigit() else c for c in value)):
            assert piece not in signed.title and piece not in str(signed.explain)
    assert titles[0] == titles[1]  # and the same bug has the same title, whatever the secret is


def test_a_title_without_secrets_does_not_change() -> None:
    """A message without a secret gives the same title as before, so recorded sightings keep their
    ids.
    """
    for message in (
        "Expected 3 got 5 for token_key at line 7",
        "KeyError: 'buf38'",
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
    ):
        link = Raised((Link("RuntimeError", message),))
        assert private_names.redact_raised(link) == link


def test_events_of_a_journal_are_redacted_before_they_are_cut() -> None:
    """Texts of the target in events are redacted before the rules read them; paths stay because the
    rules need them.
    """
    secret = make_password(random.Random(3))
    recompile = events.Recompile(reasons=[f"self.api_key == '{secret}'"], file="/home/alice/x.py")
    link = ChainLink(type="E", message=f"password={secret}", frames=(("/home/alice/x.py", "f", 3),))
    redacted_recompile, redacted_exception = private_names.redact_events(
        [recompile, events.ExceptionRaised(chain=(link,))]
    )
    assert secret not in f"{redacted_recompile} {redacted_exception}"
    assert (
        isinstance(redacted_recompile, events.Recompile)
        and redacted_recompile.file == "/home/alice/x.py"
    )
    assert (
        isinstance(redacted_exception, events.ExceptionRaised)
        and redacted_exception.chain[0].frames == link.frames
    )


def test_the_end_of_stderr_begins_with_no_part_of_a_key() -> None:
    """The end of a long text is redacted before it is cut, and the text next to an unread part is
    treated as unknown.
    """
    chance = random.Random(4)
    rows = ["".join(chance.choice(LETTERS) for _ in range(64)) for _ in range(24)]
    text = "\n".join([*rows, "-----END RSA PRIVATE KEY-----", *(f"step {n}" for n in range(99))])
    for start in range(0, 24 * 65, 37):
        redacted = private_names.redact_tail(text[start:], 1_000_000, missing_bytes=start + 1)
        assert not any(shows_secret(redacted, row) for row in rows)
        assert redacted.endswith("step 98")


def test_a_long_message_is_cut_between_lines() -> None:
    """The agent cuts a message at line ends: a token is kept entirely or removed entirely."""
    secret = token(random.Random(5))
    for before in range(23_940, 24_010, 7):
        error = ValueError("x" * (before - 1) + f"\ntoken {secret} was refused\n" + "y\n" * 20_000)
        message = exceptions.describe_exception(error)[0].message
        assert not shows_secret(Redactor().redact_text(message), secret)


def test_output_is_cut_between_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a long stream, no part of a line is kept next to the cut."""
    monkeypatch.setattr(output, "HEAD_BYTES", 200)
    monkeypatch.setattr(output, "TAIL_CHUNK_BYTES", 80)
    secret = token(random.Random(6))
    for step in range(3, 40, 3):
        path = tmp_path / f"{step}.txt"
        kept, data = (
            BoundedLog(path),
            b"".join(b"%03d password: %s\n" % (n, secret.encode()) for n in range(40)),
        )
        for start in range(0, len(data), step):
            kept.write(data[start : start + step])
        kept.close()
        assert not shows_secret(Redactor().redact_text(path.read_text()), secret)


def test_structure_is_kept_by_a_redacted_observation() -> None:
    """A record of any class is redacted into a record of that class."""
    seen = Observation(stderr_tail="password=hunter2hunter")
    assert dataclasses.asdict(Redactor().redact_value(seen))["stderr_tail"] == "password=<token-1>"
    assert json.loads(Redactor().redact_json('{"a": {"password": 123456}}')) == {
        "a": {"password": "<token-1>"}
    }
