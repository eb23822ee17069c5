import base64
import re
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from html.parser import HTMLParser

import numpy as np
import pytest

from cvm.arrays import read_npz
from cvm.demo import IMAGES, MODEL
from cvm.executors import create
from cvm.frontends import nnef
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph
from cvm.lowering import lower
from cvm.program import verify
from cvm.quantization import LinearQuantizer
from cvm.report import check_source, compare, document
from tests.report.documents import chain
from tests.report.test_comparison import report

pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
pytest.importorskip("jinja2", reason="the extra `report` is not installed")

VOID = {"meta", "link", "br", "img", "input", "hr", "wbr"}


class Page(HTMLParser):
    """The elements of a page; every one but the void ones must be closed where it belongs."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        assert len(dict(attributes)) == len(attributes), "an attribute stands twice"
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self._open[-1] if self._open else "", data))

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def identifiers(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def render(comparison):
    from cvm.report.page import page

    return page(comparison)


def labels():
    """The digits of the images, the first of them wrong."""
    found = read_npz(IMAGES, "label").copy()
    found[0] = (found[0] + 1) % 10
    return found


@pytest.fixture(scope="module")
def digits():
    return report(MODEL, {"image": read_npz(IMAGES, "image")}, labels=labels())


@pytest.fixture(scope="module")
def text(digits):
    return render(digits)


def test_the_page_loads_nothing(text):
    page = Page(text)
    for _, attributes in page.elements:
        for name in ("src", "href", "action", "data", "srcset", "poster", "xlink:href"):
            assert attributes.get(name, "#").startswith("#") or attributes[name] == "data:,"
        assert not any(name.startswith("on") for name in attributes)
        assert "@import" not in attributes.get("style", "")
        assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", attributes.get("style", "")))
    (style,) = [data for tag, data in page.texts if tag == "style"]
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in text.replace("http-equiv", "")
    assert {tag for tag, _ in page.elements}.isdisjoint({"iframe", "object", "embed", "img", "base", "form"})


def test_only_the_script_of_the_page_may_run(text):
    page = Page(text)
    (policy,) = [item["content"] for item in page.of("meta") if item.get("http-equiv") == "Content-Security-Policy"]
    (script,) = [data for tag, data in page.texts if tag == "script"]
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"


def test_links_lead_to_what_is_there_and_identifiers_are_unique(text):
    page = Page(text)
    assert len(page.identifiers) == len(set(page.identifiers))
    targets = {item["href"][1:] for item in page.of("a") + page.of("use") if "href" in item}
    targets |= {
        name
        for _, item in page.elements
        for value in item.values()
        for name in re.findall(r"url\(#([^)]*)\)", value or "")
    }
    assert targets <= set(page.identifiers)
    assert {f"t{number}" for number in range(30)} <= set(page.identifiers)


def test_the_table_is_there_without_the_script_worst_first(digits, text):
    names = [item["tensor"] for item in document(digits)["tensors"]]
    rows = re.findall(
        r'<tr id="t\d+">\s*<td class="n" data-v="\d+">\d+</td>\s*<th scope="row"><a [^>]*>([^<]*)</a>', text
    )
    assert rows == names
    assert re.findall(r'<article id="h\d+">\s*<h3><a [^>]*>([^<]*)</a>', text) == names


def test_the_page_says_what_the_document_says(digits, text):
    found = document(digits)
    page = " ".join(data.strip() for tag, data in Page(text).texts if tag not in ("style", "script"))
    for item in found["tensors"]:
        assert f"{item['sqnr_db']:.1f}" in page
    assert f"{found['classes']['labels']['program_right']} of 40" in page
    assert "39 of 40" in page
    assert found["program"]["digest"] in page
    for item in found["variables"]:
        assert item["tensor"] in page


def test_the_same_comparison_gives_the_same_bytes(digits, text):
    assert render(digits) == text
    again = report(MODEL, {"image": read_npz(IMAGES, "image")}, labels=labels())
    assert render(again) == text


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "'--><svg onload=alert(3)>",
    "</style><script>alert(4)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "$\\frac{1}{0}$",
    "]]>&amp;<!--",
    "n" * 1000,
]


def hostile_graph(names):
    """A chain of activations with the given names, and one that is not materialised."""
    unit = LinearQuantizer.linear(Fraction(-1), Fraction(1), 8)
    tensors = {"x": GraphTensor("x", (1, 3), "external", quantizer=unit)}
    operations, last = [], "x"
    for name in names:
        tensors[name] = GraphTensor(name, (1, 3), "computed", quantizer=unit)
        tensors[f"{name} unused"] = GraphTensor(f"{name} unused", (1, 3), "computed", quantizer=unit)
        operations.append(GraphOperation("relu", {"x": last}, {}, (name,)))
        operations.append(GraphOperation("relu", {"x": last}, {}, (f"{name} unused",)))
        last = name
    return QuantizedGraph("</title><script>alert(0)</script>", ("x",), (last,), tensors, tuple(operations))


def test_texts_from_files_are_texts():
    graph = hostile_graph(HOSTILE)
    program = lower(graph)
    notes = tuple(replace(item, note=f"<b>{item.note}</b>") for item in program.provenance.exactness)
    verified = verify(replace(program, provenance=replace(program.provenance, exactness=notes)))
    arrays = {"x": np.linspace(-1, 1, 12).reshape(4, 3)[:, np.newaxis]}
    source = check_source(verified, graph)
    comparison = compare(verified, graph, source, create("numpy", verified), arrays, labels=np.array([0, 1, 2, 0]))
    text = render(comparison)
    page = Page(text)
    assert len(page.of("script")) == 1
    assert page.of("img") == []
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "alert" not in "".join(data for tag, data in page.texts if tag == "script")
    shown = "".join(data for _, data in page.texts)
    for name in HOSTILE:
        assert name in shown
    assert "<b>" in shown
    for name in HOSTILE[:3]:
        assert name not in text
    assert next(data for tag, data in page.texts if tag == "title").startswith("</title><script>alert(0)</script>")


def test_doubts_about_the_model_are_said(tmp_path):
    graph = nnef.load(chain(tmp_path))
    verified = verify(lower(graph))
    arrays = {name: np.full((1, 4), 0.5) for name in ("x", "y")}
    executor = create("numpy", verified)
    for source, said in (
        (_source(True, True), 0),
        (_source(None, True), 0),
        (_source(False, False), 2),
        (_source(True, None), 1),
    ):
        text = render(compare(verified, graph, source, executor, arrays))
        assert text.count('class="warning"') == said


def _source(same, compiled):
    from cvm.report import Source

    return Source(same, compiled)


def test_a_network_too_large_to_be_drawn_is_listed(digits, monkeypatch):
    monkeypatch.setattr("cvm.report.drawing._MOST", 3)
    page = Page(render(digits))
    assert any("too large to be drawn: 13 operations" in data for _, data in page.texts)
    assert not any(item.startswith("g") for item in page.identifiers if item[1:].isdigit())


def test_more_tensors_than_cards_are_counted(digits, monkeypatch):
    monkeypatch.setattr("cvm.report.page._CARDS", 5)
    text = render(digits)
    Page(text)
    assert text.count("<article") == 5
    assert "The 5 worst of 14 tensors" in text
    assert len(re.findall(r'<tr id="t', text)) == 30


def test_settings_of_the_user_do_not_matter(digits, text):
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 31, "axes.facecolor": "red", "svg.hashsalt": "mine", "svg.fonttype": "path"}):
        assert render(digits) == text
