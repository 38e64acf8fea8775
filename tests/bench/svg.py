# SPDX-License-Identifier: Apache-2.0
"""Small diagrams as SVG: panels with linear, log or named axes, lines, points, intervals; the same input, the same bytes.

    picture = Picture("what was found", "what is shown")
    panel = picture.panel(Axis("microbatches", 4, 1024, log=True), Axis("ms", 0, 10))
    panel.line([(4, 1), (1024, 2)], 0, "expected")
    panel.points([(8, 1.2)], 1, "measured")
    picture.write(path)

A series has a number, which gives it a mark and a colour that the colour-blind tell apart.  Titles and legends stand
above the panels, in lines that are broken by estimated widths, so that nothing overlaps.
"""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, MARGIN = 760, 300, 16
LEFT, RIGHT, GAP = 52, 14, 26  # of a panel: room for its numbers; between panels
COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#997700", "#66aacc", "#666666")
INK, PALE, GRID = "#222222", "#666666", "#e4e4e4"
LETTER = 0.56  # the width of a letter over the font's size, generously


def number(value):
    """A number of pixels, as short as is exact enough."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def width(text, size):
    return LETTER * size * len(text)


def broken(text, size, room):
    """Lines of words that fit."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if width(longer, size) > room and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def label(x, y, text, size=11, anchor="start", colour=INK, weight=None):
    more = f' font-weight="{weight}"' if weight else ""
    return (f'<text x="{number(x)}" y="{number(y)}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{more}>'
            f"{escape(text)}</text>")


def rule(x1, y1, x2, y2, colour, thick=1.0, dash=None):
    more = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" stroke="{colour}" '
            f'stroke-width="{thick}"{more}/>')


def mark(x, y, series, size=4.0, hollow=False):
    """A shape by the series' number."""
    colour = COLOURS[series % len(COLOURS)]
    how = f'fill="{"#ffffff" if hollow else colour}" stroke="{colour}" stroke-width="1.5"'
    if series % 5 == 0:
        return f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(size)}" {how}/>'
    if series % 5 == 1:
        return (f'<rect x="{number(x - 0.9 * size)}" y="{number(y - 0.9 * size)}" width="{number(1.8 * size)}" '
                f'height="{number(1.8 * size)}" {how}/>')
    corners = (((0, -1.2), (1.1, 0.8), (-1.1, 0.8)), ((0, 1.2), (1.1, -0.8), (-1.1, -0.8)),
               ((0, -1.4), (1.1, 0), (0, 1.4), (-1.1, 0)))[series % 5 - 2]
    return f'<polygon points="{" ".join(f"{number(x + a * size)},{number(y + b * size)}" for a, b in corners)}" {how}/>'


class Axis:
    def __init__(self, title, low, high, log=False, ticks=None, names=None, form="{:g}"):
        """names: words at 0, 1, ... in the place of numbers; ticks: where, or [(where, text)]."""
        self.title, self.low, self.high, self.log, self.names = title, low, high, log, names
        if names:
            self.low, self.high = -0.6, len(names) - 0.4
            ticks = list(enumerate(names))
        elif ticks is None:
            ticks = self.decades() if log else self.steps()
        self.ticks = [tick if isinstance(tick, tuple) else (tick, form.format(tick)) for tick in ticks]

    def decades(self):
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return [10.0 ** k for k in range(first, last + 1)]

    def steps(self):
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(k for k in (1, 2, 5, 10) if (self.high - self.low) / (step * k) <= 6)
        return [round(k * step, 9) for k in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]

    def part(self, value):
        """Where a value lies on the axis, 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


class Panel:
    def __init__(self, x, y, title=""):
        self.x, self.y, self.title, self.drawn, self.legend = x, y, title, [], []

    def at(self, x, y):
        """Pixels; the frame is set when the picture is laid out, and what lies outside is at its edge."""
        across, up = (min(1.0, max(0.0, axis.part(value))) for axis, value in ((self.x, x), (self.y, y)))
        return self.left + across * self.across, self.top + (1 - up) * self.down

    def note(self, name, sample):
        if name and all(name != other for other, _ in self.legend):
            self.legend.append((name, sample))

    def line(self, points, series, name=None, dash=None, colour=None, thick=1.8):
        colour = colour or COLOURS[series % len(COLOURS)]
        more = f' stroke-dasharray="{dash}"' if dash else ""

        def draw():
            path = " ".join(",".join(map(number, self.at(*point))) for point in points)
            return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{thick}"{more}/>'
        self.drawn.append(draw)
        self.note(name, lambda x, y: rule(x - 9, y, x + 9, y, colour, thick, dash))

    def level(self, value, name=None, dash="5 4", colour=PALE):
        """A line across the panel."""
        self.line([(self.x.low, value), (self.x.high, value)], 0, name, dash, colour, 1.2)

    def band(self, low, high, name=None):
        """The area between two lines of points."""
        def draw():
            path = " ".join(",".join(map(number, self.at(*point))) for point in low + high[::-1])
            return f'<polygon points="{path}" fill="#dde6ee"/>'
        self.drawn.insert(0, draw)
        self.note(name, lambda x, y: f'<rect x="{number(x - 9)}" y="{number(y - 5)}" width="18" height="10" fill="#dde6ee"/>')

    def points(self, points, series, name=None, hollow=False, size=4.0):
        self.drawn.append(lambda: "\n".join(mark(*self.at(*point), series, size, hollow) for point in points))
        self.note(name, lambda x, y: mark(x, y, series, size, hollow))

    def intervals(self, points, series, name=None):
        """(x, middle, half); with an infinite middle a cross at the upper edge."""
        colour = COLOURS[series % len(COLOURS)]

        def one(x, middle, half):
            if math.isinf(middle):
                a, b = self.at(x, self.y.high)
                return rule(a - 4, b + 4, a + 4, b + 12, colour, 2) + rule(a - 4, b + 12, a + 4, b + 4, colour, 2)
            a, low = self.at(x, middle - half)
            _, high = self.at(x, middle + half)
            return rule(a, low, a, high, colour, 1.6) + mark(*self.at(x, middle), series, 3.4)
        self.drawn.append(lambda: "\n".join(one(*point) for point in points))
        self.note(name, lambda x, y: mark(x, y, series, 3.4))

    def bars(self, points, series, wide, name=None):
        """(x, height), `wide` of the axis."""
        colour = COLOURS[series % len(COLOURS)]

        def one(x, high):
            (a, top), (b, bottom) = self.at(x - wide / 2, high), self.at(x + wide / 2, self.y.low)
            top, bottom = min(top, bottom), max(top, bottom)
            return (f'<rect x="{number(a)}" y="{number(top)}" width="{number(b - a)}" '
                    f'height="{number(bottom - top)}" fill="{colour}"/>')
        self.drawn.append(lambda: "\n".join(one(*point) for point in points))
        self.note(name, lambda x, y: (f'<rect x="{number(x - 6)}" y="{number(y - 5)}" width="12" height="10" '
                                      f'fill="{colour}"/>'))

    def text(self, x, y, words, anchor="start", over=6):
        """Words beside a point, `over` pixels above it."""
        def draw():
            a, b = self.at(x, y)
            return label(a, b - over, words, 10, anchor, PALE)
        self.drawn.append(draw)

    def frame(self):
        out = []
        for value, words in self.x.ticks:
            x, _ = self.at(value, self.y.low)
            bottom = self.top + self.down
            if not self.x.names:
                out.append(rule(x, self.top, x, bottom, GRID))
            out += [label(x, bottom + 15 + 12 * i, line, 10, "middle", PALE) for i, line in enumerate(words.split("\n"))]
        for value, words in self.y.ticks:
            _, y = self.at(self.x.low, value)
            out += [rule(self.left, y, self.left + self.across, y, GRID),
                    label(self.left - 6, y + 3.5, words, 10, "end", PALE)]
        return out

    def edges(self):
        left, bottom = self.left, self.top + self.down
        lines = max(words.count("\n") for _, words in self.x.ticks)
        return [rule(left, self.top, left, bottom, PALE), rule(left, bottom, left + self.across, bottom, PALE),
                label(left + self.across / 2, bottom + 32 + 12 * lines, self.x.title, 11, "middle"),
                label(left - 40, self.top - 10, f"{self.title}: {self.y.title}" if self.title else self.y.title, 11)]

    def draw(self):
        return self.frame() + [draw() for draw in self.drawn] + self.edges()


class Picture:
    def __init__(self, title, what, height=HEIGHT):
        self.title, self.what, self.height, self.panels = title, what, height, []

    def panel(self, x, y, title=""):
        self.panels.append(Panel(x, y, title))
        return self.panels[-1]

    def head(self):
        """What stands above the panels, and how high it is."""
        out, y, room = [], MARGIN, WIDTH - 2 * MARGIN
        for text, size, colour, weight in ((self.title, 14, INK, "bold"), (self.what, 11, PALE, None)):
            for line in broken(text, size * (1.08 if weight else 1), room):
                y += size + 4
                out.append(label(MARGIN, y - 4, line, size, "start", colour, weight))
        y += 16
        x, told = MARGIN, set()
        for name, sample in (entry for panel in self.panels for entry in panel.legend):
            if name in told:
                continue
            told.add(name)
            if x + 26 + width(name, 11) > WIDTH - MARGIN:
                x, y = MARGIN, y + 18
            out += [sample(x + 10, y - 4), label(x + 25, y, name, 11)]
            x += 25 + width(name, 11) + 18
        return out, y + (34 if told else 18)

    def text(self):
        out, top = self.head()
        names = max(words.count("\n") for panel in self.panels for _, words in panel.x.ticks)
        down = self.height
        across = (WIDTH - 2 * MARGIN - GAP * (len(self.panels) - 1)) / len(self.panels)
        for i, panel in enumerate(self.panels):
            panel.left, panel.top = MARGIN + i * (across + GAP) + LEFT - 12, top
            panel.across, panel.down = across - LEFT - RIGHT + 12, down
            out += panel.draw()
        high = top + down + 44 + 12 * names
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{number(high)}" '
                f'viewBox="0 0 {WIDTH} {number(high)}" font-family="sans-serif" role="img">\n'
                f"<title>{escape(self.title)}</title>\n"
                f'<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(out) + "\n</svg>\n")
