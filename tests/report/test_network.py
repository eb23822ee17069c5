import math

import pytest

from cvm.frontends import nnef
from cvm.report.drawing import band_of, draw
from cvm.report.network import drops, network
from tests.report.documents import chain, memory


def test_a_network_has_what_depends_on_inputs(tmp_path):
    graph = nnef.load(chain(tmp_path))
    found = network(graph)
    names = [node.tensors for node in found.nodes]
    assert [node.kind for node in found.nodes[:2]] == ["input", "input"]
    assert ("table",) not in names  # constants alone
    edges = {(names[source][0], names[target][0]) for source, target in found.edges}
    assert edges == {
        ("x", "doubled"),
        ("doubled", "scaled"),
        ("scaled", "shifted"),
        ("shifted", "active"),
        ("active", "same"),
        ("x", "unused"),
        ("x", "above"),
        ("y", "above"),
        ("same", "sharp"),
        ("sharp", "scores"),
        ("y", "scores"),
    }
    kinds = [node.kind for node in network(nnef.load(memory(tmp_path / "memory"))).nodes]
    assert kinds == ["input", "state", "add", "update"]


def test_drops_are_measured_from_the_worst_operand(tmp_path):
    graph = nnef.load(chain(tmp_path))
    ratios = {
        "x": 40.0,
        "y": math.inf,
        "scaled": 30.0,
        "active": None,
        "sharp": 20.0,
        "scores": -math.inf,
        "above": math.inf,
    }
    found = drops(graph, ratios)
    assert found["x"] is found["y"] is found["active"] is None
    assert found["scaled"] == 10.0
    assert found["sharp"] is None  # what it is computed from is not defined
    assert found["scores"] == math.inf
    assert found["above"] == -math.inf
    assert drops(graph, {"x": math.inf, "scaled": math.inf})["scaled"] == 0.0
    assert drops(graph, {"x": math.inf, "scaled": 20.0})["scaled"] == math.inf


@pytest.mark.parametrize(
    ("ratio", "name"),
    [(math.inf, "equal"), (40.0, "b40"), (39.9, "b30"), (10.0, "b10"), (9.9, "b0"), (-math.inf, "b0"), (None, "b0")],
)
def test_bands(ratio, name):
    assert band_of(ratio).name == name


def test_boxes_show_the_worst_tensor_of_an_operation(tmp_path):
    graph = nnef.load(chain(tmp_path))
    numbers = {name: number for number, name in enumerate(graph.tensors)}
    ratios = {"x": 40.0, "scores": 5.0}
    figure = draw(network(graph), ratios, {"x": "40.0", "scores": "5.0"}, numbers, graph.outputs)
    boxes = {box.name: box for box in figure.boxes}
    assert (boxes["x"].band.name, boxes["x"].sqnr, boxes["x"].target) == ("b40", "40.0", numbers["x"])
    assert (boxes["scores"].band.name, boxes["scores"].output, boxes["above"].output) == ("b0", True, True)
    assert (boxes["doubled"].band.name, boxes["doubled"].sqnr) == ("none", "–")
    assert len(figure.paths) == 11
