"""AdaptiveLabelClassifier is a scikit-learn classifier, and what it learns is what the same steps elsewhere learn."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine, make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from adaptive_labels.adapters.sklearn import AdaptiveLabelClassifier
from adaptive_labels.errors import UserError
from adaptive_labels.losses import METHODS, create_loss, disturb_label

ALONE = [name for name, method in METHODS.items() if method.learns_from is None]
LEARNING = [name for name in ALONE if hasattr(METHODS[name].criterion, "residual_labels")]


def blobs(classes: int = 4, rows: int = 300) -> tuple[Any, Any]:
    X, y = make_blobs(rows, 6, centers=classes, cluster_std=4.0, random_state=0)
    return StandardScaler().fit_transform(X), y


def same(one: AdaptiveLabelClassifier, other: AdaptiveLabelClassifier) -> None:
    """Equal to the last bit: weights, the criterion's state, moments, losses."""
    for mine, theirs in zip(one._learner, other._learner, strict=True):
        mine, theirs = mine.state_dict(), theirs.state_dict()
        mine, theirs = mine.get("state", mine), theirs.get("state", theirs)
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            torch.testing.assert_close(value, theirs[name], rtol=0, atol=0)
    assert one.loss_curve_ == other.loss_curve_


@pytest.mark.parametrize(
    "classifier",
    [AdaptiveLabelClassifier(max_iter=30), AdaptiveLabelClassifier("ls++", hidden_layer_sizes=(), max_iter=50)],
    ids=["alr", "linear ls++"],
)
def test_check_estimator(classifier: AdaptiveLabelClassifier) -> None:
    results = check_estimator(classifier, on_skip=None)  # any failure raises
    assert len(results) > 50
    assert {result["status"] for result in results} <= {"passed", "skipped"}
    assert all("pandas" in str(r["exception"]) or "ARRAY_API" in str(r["exception"]) for r in results if r["exception"])


@pytest.mark.parametrize(
    ("activation", "hidden"), [("relu", (20, 10)), ("tanh", (20,)), ("logistic", (20,)), ("identity", ())], ids=str
)
def test_the_baseline_is_scikit_learns_own_network(activation: str, hidden: tuple[int, ...]) -> None:
    X, y = blobs()
    options: dict[str, Any] = {"activation": activation, "alpha": 0.5, "batch_size": 64, "max_iter": 15}
    options |= {"learning_rate": "constant", "learning_rate_init": 1e-3}
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    ours = AdaptiveLabelClassifier("baseline", hidden_layer_sizes=hidden, random_state=3, **options)
    ours.fit(X, y, sample_weight=weight)
    theirs = MLPClassifier(hidden, random_state=3, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(X, y, sample_weight=weight)
    # scikit-learn's Adam adds its ε before the correction of the bias, torch's after it
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("name", ALONE)
def test_each_method_is_trained_by_its_criterion(name: str) -> None:
    X, y = blobs()
    options = {"disturbance": 0.0} if name == "disturb-label" else {}  # its draws are its own affair
    arguments: dict[str, Any] = {"shuffle": False, "alpha": 20.0, "batch_size": 100, "random_state": 0}
    classifier = AdaptiveLabelClassifier(name, method_options=options, **arguments)
    twin = AdaptiveLabelClassifier("baseline", random_state=0, learning_rate_init=1e-99)
    network = twin.partial_fit(X, y, classes=range(4))._learner.network  # the same first weights
    criterion = create_loss(name, 4, **options).double()
    coefs, biases = ([p for p in network.parameters() if p.dim() == dimensions] for dimensions in (2, 1))
    groups = [{"params": coefs}, {"params": biases, "weight_decay": 0.0}, *criterion.parameter_groups()]
    optimizer = torch.optim.Adam(groups, lr=1e-2, weight_decay=20.0 / 100)
    for _ in range(3):
        for rows in torch.arange(len(y)).split(100):
            optimizer.zero_grad()
            criterion(network(torch.tensor(X)[rows]), torch.tensor(y)[rows]).backward()
            optimizer.step()
        criterion.epoch_end()
        classifier.partial_fit(X, y, classes=range(4))
    expected = network(torch.tensor(X)).softmax(1).detach().numpy()
    np.testing.assert_allclose(classifier.predict_proba(X), expected, atol=1e-8)
    if name in LEARNING:
        np.testing.assert_allclose(classifier.residual_labels_, criterion.residual_labels().numpy(), atol=1e-8)


@pytest.mark.parametrize("name", ALONE)
def test_the_seed_decides_and_a_pickled_classifier_goes_on_bit_by_bit(name: str) -> None:
    X, y = blobs()
    weight = np.linspace(0.5, 1.5, len(y))
    before = torch.get_rng_state()
    one, other = (AdaptiveLabelClassifier(name, batch_size=64, random_state=0, class_weight={0: 2.0}) for _ in range(2))
    for classifier in (one, other):
        classifier.partial_fit(X, y, classes=range(4), sample_weight=weight)
        assert torch.equal(torch.get_rng_state(), before)
    copy = pickle.loads(pickle.dumps(one))
    for classifier in (one, other, copy):
        torch.rand(3)  # nobody else's draws matter
        for _ in range(2):
            classifier.partial_fit(X, y, sample_weight=weight)
    same(one, other)
    same(one, copy)
    np.testing.assert_array_equal(one.predict_proba(X), copy.predict_proba(X))
    second = AdaptiveLabelClassifier(name, random_state=2, max_iter=1).fit(X, y)
    assert not np.array_equal(one.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize("name", LEARNING)
def test_residual_labels_find_known_confusions(name: str) -> None:
    """Six classes in pairs: each is confused with the other one of its pair, by construction."""
    draw = np.random.default_rng(0)
    y = draw.integers(6, size=1500)
    centres = 4.0 * np.eye(3)[np.arange(6) // 2]
    centres[1::2, :] += 0.7
    X = centres[y] + draw.normal(size=(len(y), 3))
    names = np.array(["ash", "asp", "bat", "bet", "cow", "cot"])
    classifier = AdaptiveLabelClassifier(name, random_state=0, max_iter=40).fit(X, names[y])
    labels = classifier.residual_labels_
    np.testing.assert_allclose(labels.sum(1), 1, atol=1e-6)
    np.testing.assert_array_equal(np.diagonal(labels), 0)
    order = np.searchsorted(classifier.classes_, names)  # the columns are in alphabetical order
    partner = order[np.arange(6) ^ 1]
    assert (labels.argmax(1)[order] == partner).all()
    assert (labels[order, partner] > 0.4).all()  # 0.2 where nothing is known
    top = classifier.confusions_[:6]
    assert {(found.label, found.taken_for) for found in top} == {(names[k], names[k ^ 1]) for k in range(6)}
    assert [found.probability for found in top] == sorted((found.probability for found in top), reverse=True)


def test_methods_that_learn_no_residual_labels_say_so() -> None:
    X, y = blobs()
    with pytest.raises(NotFittedError):
        _ = AdaptiveLabelClassifier().residual_labels_
    fitted = AdaptiveLabelClassifier("slr", max_iter=1).fit(X, y)
    assert not hasattr(fitted, "residual_labels_")
    with pytest.raises(AttributeError, match=r"'slr' learns no residual labels; alr, .* do"):
        _ = fitted.confusions_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "kd"}, "'kd' learns from other networks, .*: choose one of"),
        ({"method": "arl"}, "unknown method 'arl'; did you mean alr"),
        ({"method_options": {"weight": [1.0]}}, "'weight' is set by AdaptiveLabelClassifier; pass class_weight"),
        ({"method_options": ["sparse"]}, r"method_options must be a dict or None, got \['sparse'\]"),
        ({"method_options": {"smoothing": 0.1}}, "unknown option 'smoothing' of method 'alr'"),
        ({"learning_rate": "cosine"}, "learning_rate must be one of 'linear', 'constant', got 'cosine'"),
        ({"activation": "gelu"}, "activation must be one of 'relu'"),
        ({"hidden_layer_sizes": (10, 0)}, r"hidden_layer_sizes must be an int of at least 1, got \(10, 0\)"),
        ({"batch_size": 0}, "batch_size must be an int of at least 1, got 0"),
        ({"max_iter": 1.5}, "max_iter must be an int of at least 1, got 1.5"),
        ({"learning_rate_init": 0.0}, "learning_rate_init must be finite and above 0"),
        ({"alpha": -1.0}, "alpha must be finite and at least 0"),
    ],
)
def test_arguments_that_cannot_be(options: dict[str, Any], message: str) -> None:
    X, y = blobs()
    with pytest.raises(ValueError, match=message):
        AdaptiveLabelClassifier(**options).fit(X, y)


def test_calls_that_cannot_be() -> None:
    X, y = blobs()
    with pytest.raises(UserError, match="the first call of partial_fit needs classes"):
        AdaptiveLabelClassifier().partial_fit(X, y)
    started = AdaptiveLabelClassifier().partial_fit(X, y, classes=range(4))
    with pytest.raises(UserError, match="differs from the classes of the first call"):
        started.partial_fit(X, y, classes=range(5))
    with pytest.raises(UserError, match="y has labels that are not among classes: 9"):
        started.partial_fit(X, np.full(len(y), 9))
    with pytest.raises(UserError, match="partial_fit sees only some rows at a time, so class_weight='balanced' needs"):
        AdaptiveLabelClassifier(class_weight="balanced").partial_fit(X, y, classes=range(4))
    with pytest.raises(UserError, match="needs at least 2 classes, got one class"):
        AdaptiveLabelClassifier().fit(X, np.zeros(len(y)))
    with pytest.raises(UserError, match="sample_weight must be at least 0"):
        AdaptiveLabelClassifier().fit(X, y, sample_weight=-np.ones(len(y)))
    with pytest.raises(UserError, match="the loss is not finite: scale the features"):
        AdaptiveLabelClassifier(learning_rate_init=1e200).fit(X, y)


def test_a_weight_of_0_is_a_row_that_is_not_there() -> None:
    X, y = blobs()
    kept = np.arange(len(y)) % 3 > 0
    options: dict[str, Any] = {"random_state": 0, "max_iter": 5, "batch_size": 50, "class_weight": "balanced"}
    weighted = AdaptiveLabelClassifier(**options).fit(X, y, sample_weight=kept.astype(float))
    without = AdaptiveLabelClassifier(**options).fit(X[kept], y[kept], sample_weight=np.ones(kept.sum()))
    same(weighted, without)


def test_class_weights_favour_their_class() -> None:
    X, y = make_blobs([400, 40], 2, centers=[[0, 0], [1.5, 0]], random_state=0)
    recall = {}
    for weight in (None, "balanced", {0: 1.0, 1: 10.0}):
        fitted = AdaptiveLabelClassifier(class_weight=weight, random_state=0, max_iter=50).fit(X, y)
        recall[str(weight)] = (fitted.predict(X)[y == 1] == 1).mean()
    assert recall["balanced"] == pytest.approx(recall["{0: 1.0, 1: 10.0}"], abs=0.05)
    assert recall["balanced"] > recall["None"] + 0.2


def test_it_computes_in_the_type_of_the_features() -> None:
    X, y = blobs()
    narrow = AdaptiveLabelClassifier(random_state=0, max_iter=5).fit(X.astype(np.float32), y)
    wide = AdaptiveLabelClassifier(random_state=0, max_iter=5).fit(X, y)
    assert narrow.predict_proba(X).dtype == np.float32
    assert wide.predict_proba(X.astype(np.float32)).dtype == np.float64
    np.testing.assert_allclose(narrow.predict_proba(X), wide.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(np.exp(wide.predict_log_proba(X)), wide.predict_proba(X))
    narrow.partial_fit(X, y)  # goes on in its own type
    assert narrow.predict_proba(X).dtype == np.float32


def test_pipeline_grid_search_cross_validation_and_calibration() -> None:
    X, y = load_wine(return_X_y=True)
    names = np.array(["barolo", "grignolino", "barbera"])[y]
    pipeline = make_pipeline(StandardScaler(), AdaptiveLabelClassifier(random_state=0, max_iter=50))
    grid = {
        "adaptivelabelclassifier__method_options": [None, {"label_smoothing": np.float64(0.2)}],
        "adaptivelabelclassifier__hidden_layer_sizes": [(), (50,)],
    }
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(X, names)
    assert search.best_score_ > 0.95
    probabilities = cross_val_predict(search.best_estimator_, X, names, cv=3, method="predict_proba")
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert CalibratedClassifierCV(pipeline, cv=3).fit(X, names).score(X, names) > 0.95


def test_a_clone_is_unfitted_and_equal() -> None:
    X, y = blobs()
    fitted = AdaptiveLabelClassifier("alr-s", method_options={"attraction": -1.0}, random_state=0, max_iter=3).fit(X, y)
    copy = clone(fitted)
    with pytest.raises(NotFittedError):
        copy.predict(X)
    same(copy.fit(X, y), fitted)


def test_a_linear_rate_falls_to_0() -> None:
    X, y = blobs()
    options: dict[str, Any] = {"random_state": 0, "max_iter": 4, "tol": 0.0, "shuffle": False}
    falling = AdaptiveLabelClassifier(**options).fit(X, y)
    by_hand = AdaptiveLabelClassifier(**options)
    for left in (1.0, 0.75, 0.5, 0.25):
        by_hand.set_params(learning_rate_init=1e-2 * left).partial_fit(X, y, classes=range(4))
    same(falling, by_hand)


def test_training_ends_when_the_loss_does_not_fall() -> None:
    X, y = blobs()
    fitted = AdaptiveLabelClassifier(random_state=0, tol=1e9, n_iter_no_change=3).fit(X, y)
    assert fitted.n_iter_ == len(fitted.loss_curve_) == 5


def test_each_part_is_disturbed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    original = disturb_label.disturb_labels
    monkeypatch.setattr(disturb_label, "disturb_labels", lambda *given: seen.append(original(*given)) or seen[-1])
    X, y = blobs(rows=100)
    options = {"method_options": {"disturbance": 0.5}, "shuffle": False, "random_state": 0}
    classifier = AdaptiveLabelClassifier("disturb-label", **options)
    for _ in range(3):
        classifier.partial_fit(X, y, classes=np.unique(y))
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])
