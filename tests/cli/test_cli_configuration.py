"""Where every command has its options from, and what all commands share: help, completion, `--debug`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import pytest
from calling_kit import envelope, fresh, greeter
from cli_kit import process, run

import soapjms as package
from soapjms.cli.commands import COMMANDS, LazyGroup, soapjms

URI = "jms:queue:greeter"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def profile_of(*arguments: str, **environment: str) -> str:
    """Say by which profile a log is judged: what `replay` prints first."""
    done = run(*arguments, "replay", "empty.jsonl", "--out", "out", "--local", **environment)
    assert done.exit_code == 0, done.output
    return done.stdout.partition("by profile ")[2].partition(":")[0]


def test_a_flag_wins_over_the_environment_wins_over_the_file(folder: Path) -> None:
    """What is said for the command wins over what is said for all."""
    (folder / "empty.jsonl").write_bytes(b"\n")
    assert profile_of() == "rec-2012"
    (folder / "soapjms.toml").write_text('profile = "cxf"\n')
    assert profile_of() == "cxf"
    (folder / "soapjms.toml").write_text('profile = "cxf"\n[replay]\nprofile = "tibco"\n')
    assert profile_of() == "tibco"
    general, own = {"SOAPJMS_PROFILE": "websphere"}, {"SOAPJMS_REPLAY_PROFILE": "spring-ws"}
    assert profile_of(**general) == "websphere"
    assert profile_of(**general, **own) == "spring-ws"
    done = run("replay", "empty.jsonl", "--out", "out", "--local", "--profile", "cr-2009", **general, **own)
    assert "by profile cr-2009" in done.stdout


def test_another_file(folder: Path) -> None:
    """By --config or SOAPJMS_CONFIG; then that of the working directory is not read."""
    (folder / "empty.jsonl").write_bytes(b"\n")
    (folder / "soapjms.toml").write_text("not TOML")
    (folder / "other.toml").write_text('profile = "cxf"\n')
    assert profile_of("--config", "other.toml") == "cxf"
    assert profile_of(SOAPJMS_CONFIG="other.toml") == "cxf"


def test_every_kind_of_option(folder: Path) -> None:
    """Text, numbers, flags, and lists for what may be repeated; an option by the name that its flag has."""
    url = f"embedded:{fresh('broker')}"
    (folder / "hello.xml").write_bytes(envelope())
    (folder / "soapjms.toml").write_text(
        f'connection = "{url}"\n[call]\nuri = "{URI}"\ntimeout = 5\njson = true\nset = ["priority=7"]\n'
    )
    with package.connect(url) as connection, package.Dispatcher(connection, URI, greeter()):
        done = run("call", "hello.xml")
        assert done.exit_code == 0, done.stderr
        assert '"priority": 7' in done.stdout
        assert '"priority": 5' in run("call", "hello.xml", SOAPJMS_CALL_SET="priority=5").stdout
        assert "Hello World" in run("call", "hello.xml", SOAPJMS_CALL_JSON="false").stdout


def test_a_command_within_a_command(folder: Path) -> None:
    """Its table is within the other's."""
    (folder / "soapjms.toml").write_text('[uri.parse]\nmode = "strict"\njson = true\n')
    assert '"valid": true' in run("uri", "parse", "jms:queue:a").stdout
    assert run("uri", "parse", "jms:queue:a", SOAPJMS_URI_PARSE_MODE="no-such").exit_code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("timeout = true", "timeout must be text or a number, got True"),
        ("set = [true]", "set must be text or a number, or a list of these, got [True]"),
        ("timeout = nan", "nan is not a finite number"),
    ],
)
def test_values_of_another_type(folder: Path, text: str, message: str) -> None:
    """True is no number, though Python takes it for 1."""
    (folder / "soapjms.toml").write_text(f"[call]\n{text}\n")
    done = run("call", "--uri", "jms:queue:a", "--connection", "embedded:")
    assert done.exit_code == 2
    assert message in done.stderr


def test_numbers(folder: Path) -> None:
    """One with a fraction is not cut where a whole one is wanted, and 1 is on for a flag, as in a variable."""
    (folder / "soapjms.toml").write_text("[serve]\nworkers = 2.7\n")
    done = run("serve", "bank:service", "--uri", "jms:queue:a", "--connection", "embedded:")
    assert "'2.7' is not a valid integer range" in done.stderr
    (folder / "soapjms.toml").write_text("[uri.parse]\njson = 1\n")
    assert '"valid": true' in run("uri", "parse", "jms:queue:a").stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "soapjms.toml cannot be read as TOML: "),
        ("a = 1", "soapjms.toml: 'a' is not a known option for all commands; known are: connection, names, profile"),
        ("[cal]", "soapjms.toml: 'cal' is not a known command; known are: "),
        ("[uri.pars]", "soapjms.toml, [uri]: 'pars' is not a known command; known are: parse"),
        ("[uri.parse]\nmod = 1", "soapjms.toml, [uri.parse]: 'mod' is not a known option; known are: json, mode"),
        ("[uri.parse]\nmod = 1", "known are: json, mode; perhaps 'mode' was meant"),
        ("profil = 'cxf'", "known are: connection, names, profile; perhaps 'profile' was meant"),
        ("[replya]", "perhaps 'replay' was meant"),
        ("[uri.parse]\nmode = [1]", "mode must be text or a number, got [1]"),
        ("[uri.parse]\nmode = true", "mode must be text or a number, got True"),
        ("[uri.parse]\njson = [true]", "json must be text, a number, true or false, got [True]"),
        ("[uri.parse]\njson = 2", "'2' is not a valid boolean"),
        ("[uri]\nparse = 1", "soapjms.toml, [uri.parse] must be a table, got 1"),
        ("[uri.parse]\nmode = 'loose'", "'loose' is not one of"),
        ("[uri.parse]\njson = 'perhaps'", "'perhaps' is not a valid boolean"),
        (f"a = {'[' * 10_000}", "soapjms.toml cannot be read as TOML: it is nested too deep"),
    ],
)
def test_a_mistake_in_the_file_is_said(folder: Path, text: str, message: str) -> None:
    """Before anything happens, with the file, the place and what would be accepted."""
    (folder / "soapjms.toml").write_text(text)
    done = run("uri", "parse", "jms:queue:a")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


def test_a_file_that_cannot_be_read(folder: Path) -> None:
    """One that is asked for has to be there; none is read without end."""
    done = run("--config", "none.toml", "uri", "parse", "jms:queue:a")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "none.toml', which does not exist" in done.stderr
    (folder / "soapjms.toml").write_bytes(b"#" * (1 << 20) + b"#")
    assert "more than 1048576 octets" in run("uri", "parse", "jms:queue:a").stderr


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("SOAPJMS_TIMOUT", "perhaps SOAPJMS_CALL_TIMEOUT was meant"),
        ("SOAPJMS_CALL_TIMOUT", "perhaps SOAPJMS_CALL_TIMEOUT was meant"),
        ("SOAPJMS_CONECTION", "perhaps SOAPJMS_CONNECTION was meant"),
        ("SOAPJMS_URI_PARSE_MOD", "perhaps SOAPJMS_URI_PARSE_MODE was meant"),
        ("SOAPJMS_LOGLEVEL", "perhaps SOAPJMS_LOG_LEVEL was meant"),
        ("SOAPJMS_QQQ\x1b", "options are SOAPJMS_COMMAND_OPTION"),
    ],
)
def test_a_variable_that_no_option_has_is_told(folder: Path, variable: str, meant: str) -> None:
    """In one line, whatever command runs, which does what it is to do."""
    done = run("uri", "parse", "--json", "jms:queue:a", **{variable: "1"})
    assert (done.exit_code, '"valid": true' in done.stdout) == (0, True)
    name = variable.replace("\x1b", "\\x1b")
    assert done.stderr == f"Warning: the variable {name} belongs to no option and has no effect; {meant}\n"


def test_variables_that_are_told_nothing_about(folder: Path) -> None:
    """Those of other commands, those that tests have for themselves, and what only begins alike."""
    others = {"SOAPJMS_CALL_TIMEOUT": "5", "SOAPJMS_SERVE_WORKERS": "2", "SOAPJMS_LOG_LEVEL": "INFO"}
    general = {"SOAPJMS_CONNECTION": "embedded:", "SOAPJMS_PROFILE": "cxf", "SOAPJMS_NAMES": "jndi.properties"}
    rest = {"SOAPJMS_TEST_BROKER": "stomp://localhost:61613", "SOAPJMSX": "1", "_SOAPJMS_X": "1"}
    assert run("uri", "parse", "jms:queue:a", **others, **general, **rest).stderr == ""


def test_of_many_unknown_variables_some_are_told(folder: Path) -> None:
    """Whoever sets thousands does not wait for it."""
    done = run("uri", "parse", "jms:queue:a", **{f"SOAPJMS_X{number}": "1" for number in range(1000)})
    assert len(done.stderr.splitlines()) == 20


def test_a_command_that_is_not_there() -> None:
    """It is said which one was perhaps meant."""
    assert "No such command 'replya'. Did you mean 'replay'?" in run("replya", "x").stderr
    assert "No such command 'nonsense'." in run("nonsense").stderr


def leaves(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    """List the commands that do something."""
    if not isinstance(command, click.Group):
        return [(path, command)]
    return [each for name, inner in command.commands.items() for each in leaves(inner, f"{path} {name}")]


def all_commands() -> list[tuple[str, click.Command]]:
    """List them all, by the words that call them."""
    assert isinstance(soapjms, LazyGroup)
    context = click.Context(soapjms)
    found = [(name, soapjms.get_command(context, name)) for name in COMMANDS]
    return [each for name, command in found if command is not None for each in leaves(command, name)]


@pytest.mark.parametrize("path", [path for path, _ in all_commands()])
def test_every_command_has_help_and_debug(path: str) -> None:
    """Its help says how it ends; the first line of it is what the list of commands says."""
    done = run(*path.split(), "--help")
    assert done.exit_code == 0
    assert "--debug" in done.stdout
    assert "Exit status: 0" in done.stdout


RANGES: Final = [
    (f"{path} {option.opts[0]}", option)
    for path, command in all_commands()
    for option in command.params
    if isinstance(option.type, click.FloatRange)
]


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("option", [option for _, option in RANGES], ids=[name for name, _ in RANGES])
def test_what_is_no_finite_number(option: click.Option, number: str) -> None:
    """No option that takes a number takes it."""
    with pytest.raises(click.BadParameter, match=r"not a finite number|not in the range"):
        option.type.convert(number, option, None)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("soapjms ca", "call"),
        ("soapjms uri pa", "parse"),
        ("soapjms call --js", "--json"),
        ("soapjms --config so", "file"),
        ("soapjms call --wsdl gr", "file"),
        ("soapjms call gr", "file"),
        ("soapjms explain gr", "file"),
        ("soapjms wsdl lint gr", "file"),
        ("soapjms replay cap", "file"),
        ("soapjms serve --store req", "file"),
        ("soapjms capture --out cap", "dir"),
        ("soapjms report res", "dir"),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(tmp_path: Path, shell: str, words: str, found: str) -> None:
    """Commands, commands within them, and options; paths are left to the shell."""
    last = words.split()[-1]
    count = str(len(words.split()) - 1)
    word = last if shell == "fish" else count
    done = process(cwd=tmp_path, _SOAPJMS_COMPLETE=f"{shell}_complete", COMP_WORDS=words, COMP_CWORD=word)
    assert (done.returncode, done.stderr) == (0, b"")
    assert found in done.stdout.decode().replace(",", "\n").split()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_shell_is_told_how_to_complete(tmp_path: Path, shell: str) -> None:
    """The script that docs/cli.md has the shell read."""
    done = process(cwd=tmp_path, _SOAPJMS_COMPLETE=f"{shell}_source")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"_SOAPJMS_COMPLETE" in done.stdout


def test_a_mistake_of_ours_is_no_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what it is and how to see where it is from."""

    def broken(path: str) -> None:
        raise KeyError("lost\x1b")

    monkeypatch.setattr("soapjms.cli.call.read_names", broken)
    done = run("call", "--connection", "embedded:", "--uri", URI, stdin=envelope())
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: KeyError: 'lost")
    assert "--debug" in done.stderr
    assert "\x1b" not in done.stderr
