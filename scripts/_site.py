"""What mkdocs needs to know of this repository: pages outside docs/, and what is public.

The pages are plain Markdown whose links work in the repository. The hooks carry them over to the
site: its front page is the README, and a link to a file that the site does not have is its text.
"""

import json
import posixpath
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Where pages are found on the site that are elsewhere in the repository.
MOVED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "docs/index.md": "pages.md",
}
NOTEBOOKS = sorted((ROOT / "docs").glob("notebooks/*.ipynb"))
MOVED |= {f"docs/notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in NOTEBOOKS}
IN_REPOSITORY = {there: here for here, there in MOVED.items()}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the notebooks to the navigation."""
    if NOTEBOOKS and config.nav is not None:
        pages = [MOVED[f"docs/notebooks/{path.name}"] for path in NOTEBOOKS]
        roads = [place for place, section in enumerate(config.nav) if "Roads" in section]
        config.nav.insert(roads[0] + 1, {"Notebooks": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are found elsewhere in the repository."""
    front = files.get_file_from_path("index.md")
    if front is not None:
        files.remove(front)
    for here, there in MOVED.items():
        text = (ROOT / here).read_text(encoding="utf-8")
        if here.endswith(".ipynb"):
            text = _as_markdown(json.loads(text))
        files.append(File.generated(config, there, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the repository into links of the site."""
    site = page.file.src_uri
    folder = posixpath.dirname(IN_REPOSITORY.get(site, f"docs/{site}"))

    def mend(link: re.Match[str]) -> str:
        mark, text, path, anchor = link.groups()
        target = posixpath.normpath(posixpath.join(folder, path))
        there = MOVED.get(target, target.removeprefix("docs/"))
        if files.get_file_from_path(there) is not None:
            relative = posixpath.relpath(there, posixpath.dirname(site) or ".")
            return f"{mark}[{text}]({relative}{anchor or ''})"
        # What the repository has and the site has not needs no link; anything else is a mistake,
        # which mkdocs reports.
        return text if (ROOT / target).exists() else link[0]

    # GitHub needs the backslash in a table, mkdocs shows it.
    markdown = re.sub(r"`[^`\n]*`", lambda code: code[0].replace("\\|", "|"), markdown)
    return LINK.sub(mend, markdown)


def _as_markdown(notebook: dict[str, Any]) -> str:
    """A notebook as a page: its texts, its code, and what was printed or drawn."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source:
            parts.append(f"```python\n{source}\n```")
            # What is printed piece by piece is one text.
            for streamed, outputs in groupby(cell["outputs"], lambda output: "text" in output):
                if streamed:
                    text = "".join("".join(output["text"]) for output in outputs)
                    parts.append(f"```text\n{text.rstrip()}\n```")
                else:
                    parts += [_drawn(output.get("data", {})) for output in outputs]
    return "\n\n".join(parts)


def _drawn(data: dict[str, Any]) -> str:
    if "image/svg+xml" in data:
        return "".join(data["image/svg+xml"])
    if "image/png" in data:
        return f"![](data:image/png;base64,{''.join(data['image/png']).strip()})"
    return f"```text\n{''.join(data.get('text/plain', '')).rstrip()}\n```"


class PublicNames(griffe.Extension):
    """A package's public names are those that it imports from its own modules."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **_: object) -> None:
        """`Example:` is a section, as `Examples:` is to griffe."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: object) -> None:
        """Mark them, and those that `jaxperf` itself has too."""
        first = set(pkg.imports)
        for module in _modules(pkg):
            for name, path in module.imports.items():
                member = module.members[name]
                if module is pkg or not path.startswith(f"{module.path}."):
                    continue
                member.public = True
                if name in first and isinstance(member, griffe.Alias):
                    member.final_target.labels.add("jaxperf")


def _modules(module: griffe.Module) -> list[griffe.Module]:
    """The module and all below it."""
    below = [each for each in module.members.values() if isinstance(each, griffe.Module)]
    return [module, *(found for each in below for found in _modules(each))]
