"""Documents for people, made of tables, sentences and commands; the same parts as Markdown and as HTML."""

import html as markup
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Commands:
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Items:
    lines: tuple[str, ...]


type Part = str | Table | Commands | Items


@dataclass(frozen=True)
class Section:
    title: str
    parts: tuple[Part, ...]
    level: int = 2


def markdown(title: str, parts: Iterable[Section]) -> str:
    """The document as Markdown."""
    lines = [f"# {title}", ""]
    for section in parts:
        lines += [f"{'#' * section.level} {section.title}", ""]
        for part in section.parts:
            if isinstance(part, Table):
                lines.append(_row(part.columns))
                lines.append("|" + "---|" * len(part.columns))
                lines += [_row(row) for row in part.rows]
            elif isinstance(part, Commands):
                lines += [f"    {line}" for line in part.lines]
            elif isinstance(part, Items):
                lines += [f"- {line}" for line in part.lines]
            else:
                lines.append(part)
            lines.append("")
    return "\n".join(lines)


def html(title: str, parts: Iterable[Section]) -> str:
    """The document as one HTML file that needs nothing else."""
    said = markup.escape
    body = [f"<h1>{said(title)}</h1>"]
    for section in parts:
        body.append(f"<h{section.level}>{said(section.title)}</h{section.level}>")
        for part in section.parts:
            if isinstance(part, Table):
                head = "".join(f"<th>{said(name)}</th>" for name in part.columns)
                rows = "".join(f"<tr>{''.join(f'<td>{said(cell)}</td>' for cell in row)}</tr>\n" for row in part.rows)
                body.append(f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>")
            elif isinstance(part, Commands):
                body.append(f"<pre>{said(chr(10).join(part.lines))}</pre>")
            elif isinstance(part, Items):
                body.append(f"<ul>{''.join(f'<li>{said(line)}</li>' for line in part.lines)}</ul>")
            else:
                body.append(f"<p>{said(part)}</p>")
    style = (
        "body{font:15px/1.5 sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;font-size:13px}th,td{border:1px solid #bbb;padding:.2rem .5rem;text-align:left;"
        "overflow-wrap:anywhere}pre{background:#f2f2f2;padding:.7rem;overflow-x:auto}"
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{said(title)}</title>'
        f"<style>{style}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
