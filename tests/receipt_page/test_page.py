"""The page of a receipt as a file, and in Chromium: from a file, without a network, as a reader uses it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.audit import Receipt, encode_receipt
from cvm.demo import IMAGES, MODEL
from cvm.errors import Invalid
from cvm.inputs import Intake, arrange
from cvm.program import verify
from cvm.receipt_page import page
from cvm.receipt_page.bundle import bundled
from tools import chromium

needs_chromium = pytest.mark.skipif(chromium.found() is None, reason="Chromium is not installed")


class Made:
    """A page, and what it was made of."""

    def __init__(self, traced: bool, labels: tuple[str, ...] = ()) -> None:
        self.verified = verify(cvm.compile(MODEL))
        with np.load(IMAGES) as data:
            self.images = data["image"][:3]
        session = cvm.Session(self.verified.program, executor="numpy")
        receipt = session.run({"image": self.images}, receipt="trace" if traced else True).receipt
        assert receipt is not None
        self.receipt: Receipt = receipt
        self.samples = arrange(self.verified.program, {"image": self.images}, False, Intake(True))[1]
        self.content = page(self.receipt, self.verified, self.samples, None, labels)


@pytest.fixture(scope="module")
def made() -> Made:
    return Made(traced=False, labels=tuple(f"digit {k}</script><script>alert(1)" for k in range(10)))


def test_the_policy_names_the_script_and_the_style_and_nothing_else(made):
    text = made.content.decode()
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None

    def hashed(element: str) -> str:
        content = re.search(f"<{element}>(.*?)</{element.split()[0]}>", text, re.DOTALL)
        assert content is not None
        return f"'sha256-{base64.b64encode(sha256(content[1].encode()).digest()).decode()}'"

    script, style = hashed('script type="module"'), hashed("style")
    assert policy[1] == (
        f"default-src 'none'; script-src {script} 'wasm-unsafe-eval'; style-src {style}; "
        "base-uri 'none'; form-action 'none'"
    )


def test_nothing_is_loaded_and_no_text_of_a_file_ends_an_element(made):
    text = made.content.decode()
    assert re.findall(r"\b(?:src|href)\s*=", text) == []
    assert "alert(1)" in text
    assert "</script><script>alert" not in text


def test_the_page_is_the_same_every_time(made):
    assert made.content == page(
        made.receipt, made.verified, made.samples, None, tuple(f"digit {k}</script><script>alert(1)" for k in range(10))
    )


def test_a_page_needs_the_program_and_the_inputs_of_the_receipt(made):
    other = replace(made.receipt, claim=replace(made.receipt.claim, program=bytes(32)))
    with pytest.raises(Invalid, match=r"page\.program"):
        page(other, made.verified, made.samples)
    with pytest.raises(Invalid, match=r"page\.runs"):
        page(made.receipt, made.verified, made.samples[:1])


def test_modules_become_functions():
    found = bundled({"a.js": "export const one = 1;\n", "b.js": 'import { one } from "./a.js";\nexport class B {}\n'})
    assert 'const { one } = modules["a.js"];' in found
    assert not re.search("^(import|export)", found, re.MULTILINE)


@pytest.mark.parametrize("text", ['import x from "y";', "export default 1;"])
def test_other_imports_and_exports_are_refused(text):
    with pytest.raises(ValueError, match=r"a\.js"):
        bundled({"a.js": text})


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Browser]:
    with chromium.Browser() as found:
        yield found


def answer(browser: chromium.Browser) -> str:
    browser.wait("!document.getElementById('word').textContent.startsWith('Checking')")
    return str(browser.run("document.getElementById('word').textContent"))


def opened(browser: chromium.Browser, content: bytes, folder: Path) -> str:
    (folder / "page.html").write_bytes(content)
    browser.open(folder / "page.html")
    return answer(browser)


@needs_chromium
@pytest.mark.slow
def test_a_true_receipt_is_reproduced(browser, made, tmp_path):
    assert opened(browser, made.content, tmp_path) == "REPRODUCED"
    assert browser.run("document.querySelectorAll('canvas').length") == 3
    assert browser.run("document.querySelector('.class').textContent").startswith("digit ")
    assert browser.run("document.getElementById('digest').textContent") == made.verified.program.digest
    assert browser.violations == []


@needs_chromium
@pytest.mark.slow
def test_a_traced_receipt_is_reproduced(browser, tmp_path):
    traced = Made(traced=True)
    assert opened(browser, traced.content, tmp_path) == "REPRODUCED"
    (run, *others) = traced.receipt.claim.runs
    wrong = (replace(run, trace=bytes(32)), *others)
    forged = replace(traced.receipt, claim=replace(traced.receipt.claim, runs=wrong))
    assert opened(browser, page(forged, traced.verified, traced.samples), tmp_path) == "DIVERGED"


@needs_chromium
@pytest.mark.slow
def test_other_receipts_and_inputs_can_be_given(browser, made, tmp_path):
    opened(browser, made.content, tmp_path)
    (run, *others) = made.receipt.claim.runs
    forged = replace(made.receipt.claim, runs=(replace(run, outputs=(bytes(32),)), *others))
    (tmp_path / "forged.receipt").write_bytes(encode_receipt(replace(made.receipt, claim=forged)))
    (tmp_path / "torn.receipt").write_bytes(encode_receipt(made.receipt)[:-1])
    np.save(tmp_path / "same.npy", made.images)
    np.save(tmp_path / "other.npy", made.images[::-1])
    np.save(tmp_path / "shape.npy", made.images[:, :, :3])
    expected = {
        "forged.receipt": "DIVERGED", "torn.receipt": "REFUSED", "other.npy": "CANNOT_RECOMPUTE",
        "shape.npy": "REFUSED",
    }  # fmt: skip
    for name, word in expected.items():
        browser.choose("#files", tmp_path / name)
        browser.wait(f"document.getElementById('word').textContent === '{word}'")
        browser.run("document.getElementById('again').click()")
        browser.wait("document.getElementById('word').textContent === 'REPRODUCED'")
    browser.choose("#files", tmp_path / "other.npy")
    browser.wait("document.getElementById('word').textContent === 'CANNOT_RECOMPUTE'")
    browser.choose("#files", tmp_path / "same.npy")
    browser.wait("document.getElementById('word').textContent === 'REPRODUCED'")


@needs_chromium
@pytest.mark.slow
def test_a_narrow_window_needs_no_scrolling_sideways_and_keys_reach_everything(browser, made, tmp_path):
    opened(browser, made.content, tmp_path)
    browser.resize(400, 800)
    assert browser.run("document.documentElement.scrollWidth <= 400")
    browser.resize(1000, 1400)
    reached = []
    for _ in range(3):
        browser.press("Tab")
        reached.append(browser.run("document.activeElement.tagName"))
    assert {"INPUT", "SUMMARY"} <= set(reached)
    browser.run("document.querySelector('summary').focus()")
    browser.press("Enter")
    assert browser.run("document.querySelector('details').open")
