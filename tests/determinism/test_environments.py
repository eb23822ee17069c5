"""The same program bytes, digest and values of every tensor, whatever surrounds the process."""

from __future__ import annotations

import pytest

from .environments import DIGITS, MIXED, MODELS, ROOT, SINGLE, Environment, Fingerprint, fingerprint, fingerprints


@pytest.fixture(scope="module")
def mixed() -> dict[str, Fingerprint]:
    return fingerprints(MIXED)


@pytest.mark.slow
@pytest.mark.parametrize("model", range(len(MODELS)), ids=[f"{path.parent.name}/{path.name}" for path in MODELS])
@pytest.mark.parametrize("environment", MIXED[1:], ids=lambda environment: environment.name)
def test_bytes_digest_and_values_do_not_depend_on_the_environment(
    mixed: dict[str, Fingerprint], environment: Environment, model: int
) -> None:
    assert mixed[environment.name].models[model] == mixed["plain"].models[model]


@pytest.mark.slow
@pytest.mark.skipif(len(MODELS) < 3, reason="../shared/models/digits is not there")
def test_the_models_of_the_shared_folder_take_part(mixed: dict[str, Fingerprint]) -> None:
    assert [path.parent for path in MODELS[1:]] == [DIGITS, DIGITS]
    demo, lenet, mobilenet = mixed["plain"].models
    assert demo == lenet
    assert not set(lenet.values()) & set(mobilenet.values())


@pytest.mark.slow
def test_the_environments_differ_in_what_they_vary(mixed: dict[str, Fingerprint]) -> None:
    found = [item.circumstances for item in mixed.values()]
    varied = {name: len({item[name] for item in found}) for name in found[0]}
    assert varied["hash"] == len(MIXED)
    assert varied["zone"] >= 3
    assert varied["folder"] == len(MIXED)
    assert varied["OPENBLAS_NUM_THREADS"] == varied["OMP_NUM_THREADS"] == 3
    assert varied["OPENBLAS_CORETYPE"] == varied["optimize"] == 2
    assert varied["LC_ALL"] == 3
    assert varied["python"] == varied["numpy"] == 1
    assert {item["cvm"] for item in found} == {str(ROOT / "cvm" / "__init__.py")}


@pytest.mark.long
@pytest.mark.parametrize("environment", SINGLE, ids=lambda environment: environment.name)
def test_nothing_depends_on_any_one_circumstance(environment: Environment, mixed: dict[str, Fingerprint]) -> None:
    assert fingerprint(environment).models == mixed["plain"].models
