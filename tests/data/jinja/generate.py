#!/usr/bin/env python3
"""Writes cases.json.zst: templates, their variables, and what PyPI's jinja2 renders them to.

The environment is the one in which chat templates are published: an immutable sandbox with trim_blocks and
lstrip_blocks, break and continue, {% generation %}, raise_exception, strftime_now (a fixed time here) and a
tojson without HTML escapes. A case whose rendering fails has "error": true in place of "output".

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install jinja2==3.1.6 zstandard
    /tmp/venv/bin/python tests/data/jinja/generate.py

The cases are those of cases.py, written by hand for each feature; the templates of families.py; and seeded random
programs.
"""
import copy
import datetime
import json
import pathlib
import random
import re
import subprocess
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

import cases
import families

NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)
RANDOM_PROGRAMS = 3000


class Generation(Extension):
    """{% generation %} marks what the model said; its body is a block of its own."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(lineno)

    def _render(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(env, template, variables):
    """The output, or None if it fails or is something that no other program could print."""
    try:
        output = env.from_string(template).render(**copy.deepcopy(variables))  # indent changes lists
        output.encode()
    except RecursionError:
        raise
    except Exception as error:  # whatever Python raises is an error of the template
        return None
    return output


class Random:
    """Random programs over the features that Butter has. Most of them render; some are errors.

    Assignments are to names that VARIABLES has not: see jinja_eval.h for the difference that they would show.
    """

    NAMES = ["a", "b", "n", "s", "t", "xs", "d", "msgs", "flag", "nothing", "missing", "f", "u", "q", "w"]

    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *choices):
        return self.r.choice(choices)

    def literal(self):
        kind = self.r.randrange(12)
        if kind < 3:
            return str(self.r.choice([0, 1, 2, 3, 5, 7, 10, 42, 100]))
        if kind < 4:
            return self.r.choice(["1.5", "0.25", "2.0", "1e3", "3.14159", "1e-7"])
        if kind < 7:
            return self.r.choice(["'abc'", "'Hello World'", "''", "' pad '", "'a,b,c'", '"it\'s"', "'x\\ny'", "'Größe'",
                                  "'B'", "'10'", "'3.5'", "'é日本'"])
        if kind < 8:
            return self.r.choice(["true", "false", "none", "True"])
        if kind < 10:
            return "[" + ", ".join(self.literal() for _ in range(self.r.randrange(4))) + "]"
        if kind < 11:
            return "(" + "".join(self.literal() + ", " for _ in range(self.r.randrange(3))) + ")"
        keys = self.r.sample(["'k'", "'a'", "'b'", "1", "'Z'"], self.r.randrange(4))
        return "{" + ", ".join(k + ": " + self.literal() for k in keys) + "}"

    def sequence(self, depth):
        return self.pick("xs", "msgs", "s", "d", "range(%d)" % self.r.randrange(5), "[3, 1, 2]", "['b', 'A', 'c']",
                         "d.items()", "d.values()", "[a, b, n]", "t.split()", "t.split(',')", "(1, 2, 2, 3)",
                         "xs[%s:%s]" % (self.pick("", "1", "-2"), self.pick("", "2", "-1")),
                         "xs|%s" % self.pick("reverse|list", "sort", "unique|list", "select|list", "map('string')|list"))

    def test(self):
        return self.pick("defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping",
                         "sequence", "iterable", "true", "false", "odd", "even", "divisibleby(3)", "divisibleby 2",
                         "eq 1", "equalto('abc')", "ne 2", "gt 1", "in [1, 2, 'abc']", "in 'abcabc'", "sameas none",
                         "lower", "upper", "callable", "not none", "not defined", "not string", "lt(3)", ">= 2")

    def filter(self, depth):
        e = lambda: self.expression(depth - 2)
        return self.pick("trim", "length", "count", "upper", "lower", "capitalize", "title", "default('D')", "d",
                         "default('D', true)", "join", "join(', ')", "first", "last", "replace('a', 'b')",
                         "replace('', '-')", "list", "int", "int(7)", "float", "string", "tojson", "abs", "min", "max",
                         "sum", "reverse|list", "sort", "sort(reverse=true)", "unique|list", "map('upper')|list",
                         "map('length')|list", "select('odd')|list", "reject('none')|list", "select|list",
                         "items|list", "dictsort", "dictsort(by='value')", "indent", "indent(2, true)", "safe", "escape",
                         "round", "round(1)", "round(1, 'floor')", "batch(2)|list", "map(attribute='role')|list",
                         "selectattr('role', 'equalto', 'user')|list", "rejectattr('role', 'eq', 'user')|list",
                         "map(attribute='k', default=0)|list", "tojson(indent=2)", "trim('a')", "string|length",
                         "sum(start=10)", "list|length", "default(%s)" % e(), "join(%s)" % e(),
                         "groupby('role')|map('first')|list", "groupby(0)", "slice(2)|list", "slice(3, %s)|list" % self.literal(),
                         "truncate(8)", "truncate(6, true, '~', 1)", "wordcount", "center(9)", "format(%s)" % e(),
                         "forceescape", "attr('k')", "map('truncate', 4, leeway=0)|list", "unique(true)|list", "float(2)",
                         "map('format', 1)|list", "first|default('?')", "batch(2, %s)|list" % self.literal(), "string|wordcount")

    def method(self):
        return self.pick("strip()", "lstrip()", "rstrip()", "upper()", "lower()", "title()", "capitalize()", "split()",
                         "split(',')", "split(' ', 1)", "startswith('a')", "endswith('c')", "replace('l', 'L')",
                         "replace('a', '', 1)", "splitlines()", "find('b')", "count('l')", "strip('ab ')",
                         "rsplit(' ', 1)", "join(['x', 'y'])", "removeprefix('a')", "rfind('l')", "items()|list",
                         "keys()|list", "values()|list", "get('k')", "get('zz', 1)", "index(1)", "center(7, '*')", "ljust(8)",
                         "rjust(9, '.')", "zfill(6)", "partition('l')", "rpartition(' ')", "rsplit(none, 1)", "isalpha()",
                         "isdigit()", "isspace()", "isupper()", "islower()", "istitle()", "isalnum()", "swapcase()",
                         "expandtabs(3)", "rindex('a')", "format(1, x=2)", "isascii()")

    def expression(self, depth):
        if depth <= 0:
            return self.pick(self.literal(), self.r.choice(self.NAMES))
        e = lambda: self.expression(depth - 1)
        kind = self.r.randrange(20)
        if kind < 3:
            return self.expression(0)
        if kind < 5:
            return "(%s %s %s)" % (e(), self.pick("+", "-", "*", "/", "//", "%", "~", "~", "+"), e())
        if kind < 7:
            return "(%s %s %s)" % (e(), self.pick("==", "!=", "<", ">", "<=", ">=", "in", "not in"), e())
        if kind < 9:
            return "(%s %s %s)" % (e(), self.pick("and", "or"), e())
        if kind < 10:
            return "(%s if %s else %s)" % (e(), e(), e())
        if kind < 11:
            return "(%s is %s)" % (e(), self.test())
        if kind < 15:
            return "%s|%s" % (self.pick(e(), self.sequence(depth), "s", "t"), self.filter(depth))
        if kind < 17:
            return "%s.%s" % (self.pick("s", "t", "d", "'abcab'", "xs", "u"), self.method())
        if kind < 18:
            return "%s[%s]" % (self.pick("xs", "s", "d", "msgs", "t"),
                               self.pick("0", "-1", "1", "'k'", "9", "1:", ":2", "::2", "::-1", "-2:", "'role'", ":-1"))
        if kind < 19:
            return self.pick("(not %s)" % e(), self.formatted(depth))
        return self.pick("msgs[0].content", "msgs[-1]['role']", "d.k", "d['a']", "-n", "n ** 2", "xs + [1]",
                         "{'x': n}.x", "(a, b)|list", "dict(p=1, q=n)", "range(1, 8, 3)|list", "nothing|default(1)")

    def formatted(self, depth):
        """A format and what goes into it; most of them fit."""
        e = lambda: self.expression(depth - 2)
        kind = self.r.randrange(3)
        if kind == 0:
            spec = lambda: self.pick("", "", ">6", "<5", "^7", "*^9", "05", "+", ",", ".2f", "8.3f", "x", "#x", "e", "%", ".1%",
                                     "_", "b", "d", "g", ".3", "6.2", "=+8", "s", ".2s", "c")
            fields = "".join("{%s%s%s}" % (self.pick("", "", "0", "k"), self.pick("", "", "!r", "!s"),
                                           self.pick("", ":" + spec())) for _ in range(self.r.randrange(1, 4)))
            return "'%s|{{}}'.format(%s, %s, k=%s)" % (fields, self.pick("n", "f", "s", e()), self.pick("n", "-f", e()), e())
        if kind == 1:
            spec = lambda: self.pick("s", "s", "d", "r", "5s", "-6s", "05d", "+d", ".2f", "8.1f", "x", "#X", "e", "g", "%", "c", ".2s")
            return "'%%%s-%%%s' %% (%s, %s)" % (spec(), spec(), self.pick("n", "f", "s", e()), self.pick("n", "f", e()))
        return "'%%(k)s %%(a)%s' %% d" % self.pick("s", "d", "05.1f", "r")

    def statements(self, depth, loop):
        return "".join(self.statement(depth, loop) for _ in range(self.r.randrange(1, 4)))

    def statement(self, depth, loop):
        space = lambda: self.pick("", "", "-")
        kind = self.r.randrange(16)
        if depth <= 0 or kind < 5:
            text = self.pick("", "\n", " x ", "  \n  ", "text\n", "é ")
            value = self.pick(self.expression(2), self.expression(1), "loop.index" if loop else "n")
            return "%s{{%s %s %s}}" % (text, space(), value, space())
        if kind < 8:
            parts = ["\n{%%%s if %s %s%%}\n" % (space(), self.expression(2), space()), self.statements(depth - 1, loop)]
            if self.r.random() < 0.4:
                parts += ["{%% elif %s %%}" % self.expression(1), self.statements(depth - 1, loop)]
            if self.r.random() < 0.5:
                parts += [" {%% else %s%%} " % space(), self.statements(depth - 1, loop)]
            return "".join(parts) + "{%%%s endif %%}" % space()
        if kind < 12:
            target, items = self.pick(("x", self.sequence(1)), ("x", self.sequence(1)), ("k, v", "d.items()"),
                                      ("k, v", "d|dictsort"), ("m", "msgs"), ("x", self.expression(1)))
            condition = self.pick("", "", "", " if loop is defined", " if %s" % self.expression(1))
            body = self.pick("{{ loop.index0 }}{{ ',' if not loop.last }}", "{{ loop.first }}{{ x }}", "",
                             "{{ loop.cycle('a', 'b') }}", "{% if loop.index > 2 %}{% break %}{% endif %}",
                             "{% if loop.first %}{% continue %}{% endif %}", "{{ loop.previtem }}{{ loop.nextitem }}",
                             "{{ loop.revindex }}/{{ loop.length }}", "{{ loop.changed(x) }}", "{% set n = n + 1 %}{{ n }}")
            otherwise = self.pick("", "", "{% else %}none\n")
            return "{%%%s for %s in %s%s %%}\n  %s%s%s{%% endfor %s%%}\n" % (
                space(), target, items, condition, body, self.statements(depth - 1, True), otherwise, space())
        if kind < 13:
            return "{%% set %s = %s %%}" % (self.pick("q", "w", "p"), self.expression(2))
        if kind == 13 and self.r.random() < 0.5:
            return self.block(depth, loop)
        if kind < 14:
            return "{%% set ns = namespace(v=%s) %%}{%% for i in range(3) %%}{%% set ns.v = %s %%}{%% endfor %%}{{ ns.v }}" % (
                self.literal(), self.pick("i", "ns.v ~ i", "[ns.v, i]", self.expression(1)))
        if kind < 15:
            return "{%% macro m(p, q=%s) %%}<{{ p }}|{{ q }}>{%% endmacro %%}{{ m(%s) }}{{ m(1, q=%s) }}" % (
                self.literal(), self.expression(1), self.expression(1))
        return "{%% set w %s%%}%s{%% endset %%}{{ w|length }}{# note #}\n" % (
            self.pick("", "| upper "), self.statements(depth - 1, loop))

    def block(self, depth, loop):
        """The less common blocks."""
        inner = lambda: self.statements(depth - 1, loop)
        return self.pick(
            lambda: "{%% with v = %s, z = n %%}{{ v }}%s{%% endwith %%}" % (self.expression(1), inner()),
            lambda: "{%% filter %s %%}%s{%% endfilter %%}" % (self.pick("upper", "trim|lower", "replace('a', 'b')", "indent(2)"), inner()),
            lambda: "{%% macro c(p) %%}[{{ p }}{{ caller(p, 2) if caller }}{{ kwargs }}{{ varargs|length }}]{%% endmacro %%}"
                    "{%% call(x, y) c(%s, 1, z=2) %%}{{ x }}%s{%% endcall %%}{{ c(3) }}" % (self.expression(1), inner()),
            lambda: "{%% for x in [1, [2, [3, %s]], 4] recursive %%}{{ loop.depth }}{{ loop(x) if x is iterable and x is not string "
                    "else x }}{{ ',' if not loop.last }}{%% endfor %%}" % self.expression(1),
            lambda: "{%% for g, l in msgs|groupby('%s') %%}{{ g }}{{ l|length }}%s{%% endfor %%}" % (self.pick("role", "content"), inner()),
            lambda: "{%% generation %%}%s{%% endgeneration %%}" % inner(),
            lambda: "{%% set sep = joiner(%s) %%}{%% for x in %s %%}{{ sep() }}{{ x }}{%% endfor %%}" % (
                self.pick("", "'-'"), self.sequence(1)),
            lambda: "{%% set c = cycler('a', %s) %%}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}" % self.literal(),
            lambda: "{%% set q | %s %%}%s{%% endset %%}{{ q }}" % (self.pick("trim", "upper|trim", "length", "tojson"), inner()),
            lambda: "{%% raw %%}{{ x }}{%% endraw %%}{#- note -#} {%%+ if %s %%}y{%% endif +%%}\n" % self.expression(1),
            lambda: "{%% for i in range(3) if i != %s %%}{%% for j in range(i) %%}{{ loop.index }}{{ j }}{%% else %%}e{%% endfor %%}{%% endfor %%}" % self.literal(),
        )()

    def program(self):
        return self.statements(3, False)


def unprintable(output):
    """Whether it shows a Python object, whose text nobody else can have."""
    return re.search(r"<[^<>\n]* at 0x[0-9a-f]+>|<built-in method", output)


def main():
    env = environment()
    out = []
    for template, variables in [*cases.all_cases(), *families.all_cases()]:
        output = render(env, template, variables)
        case = {"template": template}
        if variables is not cases.VARIABLES:
            case["variables"] = variables
        if output is None or unprintable(output):
            case["error"] = True
        else:
            case["output"] = output
        out.append(case)
    by_hand = len(out)
    seed = 0
    errors = 0
    while len(out) < by_hand + RANDOM_PROGRAMS:
        seed += 1
        template = Random(seed).program()
        output = render(env, template, cases.VARIABLES)
        if output is not None and len(output) > 2000:
            continue
        if output is None or unprintable(output):
            # Three of four errors are left out: an error stops a program, and shows less.
            errors += 1
            if errors % 4 != 0:
                continue
            out.append({"template": template, "error": True})
        else:
            out.append({"template": template, "output": output})
    document = {"jinja2": jinja2.__version__, "variables": cases.VARIABLES, "cases": out}
    text = json.dumps(document, ensure_ascii=False, indent=0, sort_keys=False)
    path = pathlib.Path(__file__).with_name("cases.json.zst")
    subprocess.run(["zstd", "-19", "-q", "-f", f"--stream-size={len(text.encode())}", "-o", str(path)],
                   input=text.encode(), check=True)
    print(f"{by_hand} cases by hand, {len(out) - by_hand} random programs, "
          f"{sum('error' in c for c in out)} errors, {path.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
