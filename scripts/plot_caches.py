#!/usr/bin/env python3
"""Draws what cache schemes give and cost, as two SVGs, from what `butter bench --json` and `butter eval --json` print.

    butter bench -m smollm2 --kv-cache raw,affine8,affine4,aura,aura3v2 --depth 0,1024,8192,32768 --json \
        > bench/results/caches.json
    butter eval -m smollm2 --json > bench/results/eval.json
    scripts/plot_caches.py

Standard library only. The pictures have no background, and colours that can be read on white and on black.
"""

import argparse
import html
import json
import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 84, 630, 50, 360  # of the area of the data
TEXT, GRID = "#7d8590", "#7d859040"
LABEL_GAP = 15  # pixels from one label to the next

FAMILY_COLOURS = {"raw": ["#848d97"], "affine": ["#c9731f", "#b08800", "#d4545f"],
                  "aura": ["#3a85d8", "#1f9a8a", "#9a6fd6", "#4f9a3a", "#c55a9d"], "other": ["#a07650", "#6a7fb0"]}


class PlotError(Exception):
    """One sentence for the user."""


def family(scheme):
    """The kind of format of a scheme's name."""
    for name in ("raw", "affine", "aura"):
        if scheme.startswith(name):
            return name
    return "other"


def scheme_colours(schemes):
    """A colour for each scheme: the same in every picture that has the same schemes of a kind before it."""
    used, colours = {}, {}
    for scheme in schemes:
        shades = FAMILY_COLOURS[family(scheme)]
        index = used.get(family(scheme), 0)
        used[family(scheme)] = index + 1
        colours[scheme] = shades[index % len(shades)]
    return colours


# --- reading --------------------------------------------------------------------------------------------------------


def read_rows(path, fields):
    """The JSON of a command, and its rows; every one has the fields."""
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise PlotError(f"{path} is no JSON: {error}") from error
    rows = report.get("rows") if isinstance(report, dict) else None
    if not rows:
        raise PlotError(f'{path} has no "rows"; the output of butter bench --json or butter eval --json is expected')
    for row in rows:
        for field in fields:
            if field not in row:
                raise PlotError(f'{path} has a row without "{field}"')
    return report, rows


# --- drawing --------------------------------------------------------------------------------------------------------


class Axis:
    """A value to a pixel, evenly or by its logarithm."""

    def __init__(self, low, high, first, last, log):
        self.log = log
        self.low, self.high = self.scaled(low), self.scaled(high)
        self.first, self.last = first, last

    def scaled(self, value):
        return math.log10(value) if self.log else value

    def __call__(self, value):
        share = (self.scaled(value) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)


class Drawing:
    """SVG text under way."""

    def __init__(self, title, caption):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
                      f'font-family="system-ui, sans-serif" font-size="12" fill="{TEXT}">',
                      f"<title>{html.escape(title)}</title>"]
        self.text(LEFT, 24, title, size=15, weight="600")
        self.text(LEFT, HEIGHT - 12, caption, size=10)

    def text(self, x, y, text, anchor="start", size=None, colour=None, weight=None, turn=None):
        attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        attributes += f' font-size="{size}"' if size else ""
        attributes += f' fill="{colour}"' if colour else ""
        attributes += f' font-weight="{weight}"' if weight else ""
        attributes += f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(f"<text {attributes}>{html.escape(text)}</text>")

    def line(self, points, colour, width=1.0):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
                          'stroke-linejoin="round"/>')

    def dot(self, x, y, colour, hollow=False):
        fill = f'fill="none" stroke="{colour}" stroke-width="1.8"' if hollow else f'fill="{colour}"'
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {fill}/>')

    def across(self, y, label):
        """A line of the grid for a value of the y axis."""
        self.line([(LEFT, y), (RIGHT, y)], GRID)
        self.text(LEFT - 8, y + 4, label, anchor="end")

    def down(self, x, label):
        """A line of the grid for a value of the x axis."""
        self.line([(x, TOP), (x, BOTTOM)], GRID)
        self.text(x, BOTTOM + 18, label, anchor="middle")

    def name_axes(self, x_name, y_name):
        self.text((LEFT + RIGHT) / 2, BOTTOM + 40, x_name, anchor="middle")
        self.text(16, (TOP + BOTTOM) / 2, y_name, anchor="middle", turn=-90)

    def save(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(self.parts + ["</svg>"]) + "\n", encoding="utf-8")


def log_ticks(low, high):
    """1, 2 and 5 times powers of ten; powers of ten alone where there are many."""
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]


def plain(value):
    """A tick's label."""
    return f"{value:,.0f}" if value >= 1 else f"{value:.10f}".rstrip("0")


def spread(places):
    """Moves the y of labels, as little as needed, so that none covers another. Places in any order, and back."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = [places[i] for i in order]
    for _ in range(200):
        for above in range(len(moved) - 1):
            missing = LABEL_GAP - (moved[above + 1] - moved[above])
            if missing > 0:
                moved[above] -= missing / 2
                moved[above + 1] += missing / 2
    result = [0.0] * len(places)
    for place, i in zip(moved, order):
        result[i] = place
    return result


def caption(report):
    return ", ".join(str(report[key]) for key in ("model", "machine") if report.get(key)) + (
        f'; commit {report["commit"]}' if report.get("commit") else "")


def draw_speed(report, rows, path):
    """Decode speed against depth, a line a scheme, named at its end."""
    schemes = list(dict.fromkeys(row["kv_cache"] for row in rows))
    depths = sorted({row["depth"] for row in rows})
    deep = [depth for depth in depths if depth > 0]
    # On a scale of logarithms depth 0 stands one doubling before the first.
    first = deep[0] / 2 if deep else 1
    place = {depth: max(depth, first) for depth in depths}
    speeds = [row["decode_tps"] for row in rows]
    x = Axis(first, max(place[depths[-1]], first * 2), LEFT, RIGHT - 12, log=True)
    low, high = min(speeds) * 0.85, max(speeds) * 1.15
    y = Axis(low, high, BOTTOM, TOP, log=True)

    drawing = Drawing("Decode speed against depth", caption(report))
    for tick in log_ticks(low, high):
        drawing.across(y(tick), plain(tick))
    for depth in depths:
        drawing.down(x(place[depth]), f"{depth:,}")
    drawing.name_axes("positions in the cache", "tokens a second")

    colours = scheme_colours(schemes)
    lines = []
    for scheme in schemes:
        own = sorted((row["depth"], row["decode_tps"]) for row in rows if row["kv_cache"] == scheme)
        lines.append([(x(place[depth]), y(speed)) for depth, speed in own])
    for scheme, line, label_y in zip(schemes, lines, spread([line[-1][1] for line in lines])):
        drawing.line(line, colours[scheme], 2)
        for at in line:
            drawing.dot(*at, colours[scheme])
        drawing.line([line[-1], (RIGHT + 6, label_y)], colours[scheme], 0.7)
        drawing.text(RIGHT + 10, label_y + 4, scheme, colour=colours[scheme])
    drawing.save(path)


# Schemes of one kind that a line joins: the same bits on both sides, as they are meant to be used.
JOINED = {"aura": re.compile(r"aura(\d)v\1"), "affine": re.compile(r"affine\d")}


def label_place(dot_x, dot_y, text, taken):
    """Where the label of a point goes, and the box that it takes: the first place that is free, if any is."""
    width = 7.0 * len(text)
    places = []
    for right, down in ((8, -5), (8, 15), (-8, 15), (-8, -5)):
        text_x, text_y = dot_x + right, dot_y + down
        left_edge = text_x if right > 0 else text_x - width
        box = (left_edge, text_y - 11, left_edge + width, text_y + 3)
        places.append((text_x, text_y, "start" if right > 0 else "end", box))
    for place in places:
        box = place[3]
        free = all(box[2] < b[0] or b[2] < box[0] or box[3] < b[1] or b[3] < box[1] for b in taken)
        if free and box[0] > LEFT:
            return place
    return places[0]


def draw_quality(report, rows, path):
    """KLD against bits, a point a scheme; open ones are :plain."""
    points = [(row["kv_cache"], row["bits_per_value"], row["kld_mean"]) for row in rows
              if row["kld_mean"] is not None and row["kld_mean"] > 0]
    if not points:
        raise PlotError("no scheme of the eval report has a KLD above 0; nothing can be drawn")
    bits = [point[1] for point in points]
    klds = [point[2] for point in points]
    x = Axis(math.floor(min(bits) - 0.1), math.ceil(max(bits) + 0.1), LEFT, RIGHT, log=False)
    low, high = min(klds) / 2, max(klds) * 2
    y = Axis(low, high, BOTTOM, TOP, log=True)

    drawing = Drawing("Distance from the raw cache against bits", caption(report))
    for tick in log_ticks(low, high):
        drawing.across(y(tick), plain(tick))
    for tick in range(math.floor(min(bits) - 0.1), math.ceil(max(bits) + 0.1) + 1):
        drawing.down(x(tick), str(tick))
    drawing.name_axes("bits a value of a sealed page, everything counted", "KLD from the raw cache, nats a position")

    for kind, pattern in JOINED.items():
        line = sorted((point[1], point[2]) for point in points if pattern.fullmatch(point[0]))
        drawing.line([(x(b), y(kld)) for b, kld in line], FAMILY_COLOURS[kind][0], 1.2)
    points.sort(key=lambda point: (point[1], point[0]))
    dots = [(x(b), y(kld)) for _, b, kld in points]
    taken = [(dot_x - 5, dot_y - 5, dot_x + 5, dot_y + 5) for dot_x, dot_y in dots]
    for (scheme, _, _), (dot_x, dot_y) in zip(points, dots):
        colour = FAMILY_COLOURS[family(scheme)][0]
        drawing.dot(dot_x, dot_y, colour, hollow=scheme.endswith(":plain"))
        text_x, text_y, anchor, box = label_place(dot_x, dot_y, scheme, taken)
        drawing.text(text_x, text_y, scheme, anchor=anchor, colour=colour)
        taken.append(box)
    drawing.save(path)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bench", type=Path, default=ROOT / "bench/results/caches.json")
    arguments.add_argument("--eval", type=Path, default=ROOT / "bench/results/eval.json")
    arguments.add_argument("--out", type=Path, default=ROOT / "docs/images", help="the folder of the pictures")
    options = arguments.parse_args()
    try:
        bench_report, bench_rows = read_rows(options.bench, ("kv_cache", "depth", "decode_tps"))
        eval_report, eval_rows = read_rows(options.eval, ("kv_cache", "bits_per_value", "kld_mean"))
        draw_speed(bench_report, bench_rows, options.out / "decode-speed.svg")
        draw_quality(eval_report, eval_rows, options.out / "quality.svg")
    except PlotError as error:
        sys.exit(f"plot_caches: {error}")
    except OSError as error:
        sys.exit(f"plot_caches: {error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
