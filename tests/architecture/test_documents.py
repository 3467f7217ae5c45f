"""The faults of documents that a reader hits: a link that leads nowhere, a command that does not parse, code that does
not compile, a page that no longer says what the code does. Nothing here is about style."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import yaml

import horsies
from horsies import ErrorCode
from horsies.core.models.monitoring.cluster import Why
from tests.architecture.source import modules
from tests.deploy.command_lines import known_options, parsed, spoken_of, unknown

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# In a message a command is in backticks, begins a part of a sentence, or follows "run"; elsewhere "horsies" is a name.
MENTION = re.compile(r"(?:`|\(|[:;] |\brun |\bsee |^(?=.* --| shop))horsies ([a-z][^`;,)]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# The options of other programs that we start or read.
FOREIGN = ("contrib/django/management/commands/horsies.py", "core/embedded/keeper/cluster.py")


def test_the_pages_written_from_code_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_links_lead_somewhere() -> None:
    broken = []
    for page, text in PAGES.items():
        prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)  # x[int](y) is not a link
        prose = re.sub(r"`[^`\n]+`", "code", prose)
        broken += [f"{page}: {target}" for target in LINK.findall(prose) if not _exists(ROOT / page, target)]
    assert broken == []


def _exists(page: Path, target: str) -> bool:
    if target.startswith(("http://", "https://")):
        return True
    path, _, anchor = target.partition("#")
    file = (page.parent / path) if path else page
    return file.exists() and (not anchor or anchor in _anchors(file))


def _anchors(file: Path) -> set[str]:
    """Those of the headings, and those that are written out, as rules have them."""
    text = file.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    of_headings = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return of_headings | set(re.findall(r'<a id="([^"]+)"></a>', text))


def test_commands_of_pages_are_understood() -> None:
    wrong, seen = [], 0
    for page, text in PAGES.items():
        for words in spoken_of(text):
            seen += 1
            try:
                parsed(words)
            except AssertionError as problem:
                wrong.append(f"{page}: {problem}")
        for spoken in re.findall(r"`horsies ([a-z][^`]*)`", text):
            wrong += [f"{page}: horsies {spoken}: {word}" for word in unknown(shlex.split(spoken))]
    assert wrong == []
    assert seen >= 40


def test_commands_and_options_that_messages_name_exist() -> None:
    wrong, seen = [], 0
    for place, text in _strings():
        for mention in MENTION.findall(text):
            seen += 1
            wrong += [f"{place}: horsies {mention}: {word}" for word in unknown(_words(mention))]
        if not place.startswith(FOREIGN):
            wrong += [f"{place}: {option}" for option in OPTION.findall(text) if option not in known_options()]
    assert wrong == []
    assert seen >= 100


def _words(mention: str) -> list[str]:
    """A placeholder or a quote that is not closed does no harm."""
    try:
        words = shlex.split(mention.partition(" | ")[0])
    except ValueError:
        words = mention.split()
    return [word.rstrip(".:") for word in words]


def _strings() -> Iterator[tuple[str, str]]:
    """The texts in the code of the package, and where they are; `X` stands for what is filled in."""
    for module in modules().values():
        if not OPTION.search(module.text) and not re.search(r"horsies [a-z]", module.text):
            continue  # to read all of them takes seconds
        file = module.path.relative_to(ROOT / "horsies").as_posix()
        parts: set[ast.expr] = set()
        for node in ast.walk(ast.parse(module.text)):  # which comes to the parts of a text after the text
            if isinstance(node, ast.JoinedStr):
                parts.update(node.values)
                said = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values]
                yield f"{file}:{node.lineno}", "".join(said)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
                yield f"{file}:{node.lineno}", node.value


def test_targets_of_make_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob(".github/**/*.yml"), *ROOT.glob(".github/*.md")]
    wrong = []
    for file in files:
        text = file.read_text()
        for line in re.findall(r"`(make [^`…]+)`|^(?:\s*(?:- )?run: |\s*)(make [^#\n]*)", text, re.MULTILINE):
            words = [word for word in "".join(line).split()[1:] if "=" not in word and not word.startswith(("-", "$"))]
            wrong += [f"{file.relative_to(ROOT)}: make {word}" for word in words if word not in targets]
    assert wrong == []


def test_python_of_pages_compiles() -> None:
    wrong, seen = [], 0
    for page, text in PAGES.items():
        for block in re.findall(r"^( *```python\n.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
            code = textwrap.dedent(block).partition("\n")[2]
            seen += 1
            try:
                compile(code, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            except SyntaxError as problem:
                wrong.append(f"{page}: {problem.msg}: {(problem.text or '').strip()}")
    assert wrong == []
    assert seen >= 100


def test_error_codes_that_a_text_names_exist() -> None:
    known = {code.value for code in ErrorCode}
    texts = [*PAGES.items(), *((module.name, module.text) for module in modules().values())]
    assert [
        f"{name}: {code}" for name, text in texts for code in re.findall(r"HRS-\d{3}", text) if code not in known
    ] == []


def test_troubleshooting_answers_every_reason_of_explain() -> None:
    page = PAGES["docs/troubleshooting.md"]
    assert [str(why) for why in Why if f"`{why}`" not in page] == []


def test_the_reference_has_every_public_name_once() -> None:
    named = [
        name
        for page, text in PAGES.items()
        if page.startswith("docs/reference/")
        for name in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)
    ]
    public = [f"horsies.{name}" for name in horsies.__all__]
    assert sorted(name for name in named if name.count(".") == 1 and name != "horsies.monitoring") == sorted(public)
    assert "horsies.monitoring" in named


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    class Loader(yaml.SafeLoader):
        """Tags that name functions are left alone."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
    named = _pages_of(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"])
    there = [page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")]
    assert sorted(named) == sorted(page for page in there if not page.startswith("decisions/"))


def _pages_of(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    assert not isinstance(parts, str | None)
    return [page for part in parts for page in _pages_of(part)]  # type: ignore[union-attr]


def test_x41_the_configuration_for_agents_starts_a_command_that_exists() -> None:
    [block] = re.findall(r"^```json\n(.*?)^```$", PAGES["docs/mcp.md"], re.DOTALL | re.MULTILINE)
    server = json.loads(block)["mcpServers"]["horsies"]
    assert server["command"].endswith("/horsies")
    name, values = parsed(server["args"])
    assert name == "mcp" and values["mask"] == ["password"] and values["enable_actions"] is False


def test_r22_the_documentation_asks_for_idempotent_tasks() -> None:
    assert "idempotent" in PAGES["docs/recovery.md"]
