"""A classifier for scikit-learn: a network on numeric features, trained with any method that needs a single network.

Shapes: N rows, F features, K classes; layer sizes F, hidden_layer_sizes…, K.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from adaptive_labels.errors import UserError
from adaptive_labels.losses import METHODS, Confusion, create_loss, find_method
from adaptive_labels.losses.arguments import check_choice, check_number
from adaptive_labels.losses.base import Criterion
from adaptive_labels.losses.confusions import largest

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state, compute_class_weight
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "adaptive_labels.adapters.sklearn needs scikit-learn 1.6 or newer: pip install 'adaptive-labels[sklearn]'"
    ) from error

__all__ = ["AdaptiveLabelClassifier"]

CONFUSIONS = 20
FLOATS = (np.float64, np.float32)
ROWS_AT_ONCE = 2**15  # that are predicted in one operation
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid, "identity": nn.Identity}
# The options of criteria that are not the method's, and what to use instead.
TAKEN = {"weight": "; pass class_weight", "ignore_index": "", "reduction": ""}
Rows = tuple[Tensor, Tensor, Tensor | None]  # features (N, F), classes (N,), weights (N,)


class _Learner(NamedTuple):
    """All that training changes. The first group of the optimizer is what ``alpha`` decays."""

    network: nn.Sequential
    criterion: Criterion
    optimizer: torch.optim.Optimizer


class AdaptiveLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-layer perceptron or linear classifier for numeric features, trained with a method of this package.

    By default it has one hidden layer of 100 units and uses Adam with batches of 200 rows, like scikit-learn's
    ``MLPClassifier``; its rate starts higher and falls, so that it needs 100 epochs instead of 200. It computes in the
    type of the features, float32 or float64. Scale the features first, for instance with ``StandardScaler``.

    Args:
        method: ``"alr"``, ``"alr-s"``, ``"slr"``, ``"baseline"``, … (``alr list methods``), but none that needs other
            networks.
        method_options: the method's own options, for instance ``{"label_smoothing": 0.2}``.
        hidden_layer_sizes: units of each hidden layer; ``()`` is a linear classifier.
        activation: of the hidden layers: ``"relu"``, ``"tanh"``, ``"logistic"`` or ``"identity"``.
        alpha: strength of the L2 penalty on weights, divided by the sum of a batch's sample weights.
        batch_size: rows per step; ``"auto"`` is 200, or all rows if they are fewer.
        learning_rate: ``"linear"``: the rate falls to 0 over the ``max_iter`` epochs of :meth:`fit`; ``"constant"``.
            In :meth:`partial_fit` it is constant.
        learning_rate_init: Adam's learning rate at the start.
        max_iter: epochs at most.
        shuffle: draw a new order of the rows for each epoch.
        random_state: the seed of the first weights, the order of rows, and the draws of the method.
        tol: training ends when the loss has not fallen by more than this for ``n_iter_no_change`` epochs.
        n_iter_no_change: see ``tol``.
        class_weight: weight per class: a dict, ``"balanced"``, or None.

    Attributes:
        classes_: (K,), in the order of the columns of ``predict_proba``.
        residual_labels_: (K, K), if the method learns them: row k says what class k is taken for.
        confusions_: the largest residual labels as (label, taken_for, probability), at most 20.
        loss_curve_, n_iter_: the mean loss of each epoch, and how many there were.

    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_wine(return_X_y=True)
    >>> make_pipeline(StandardScaler(), AdaptiveLabelClassifier(random_state=0)).fit(X, y).score(X, y)
    1.0
    """

    def __init__(
        self,
        method: str = "alr",
        *,
        method_options: Mapping[str, Any] | None = None,
        hidden_layer_sizes: int | Sequence[int] = (100,),
        activation: str = "relu",
        alpha: float = 1e-4,
        batch_size: int | str = "auto",
        learning_rate: str = "linear",
        learning_rate_init: float = 1e-2,
        max_iter: int = 100,
        shuffle: bool = True,
        random_state: Any = None,
        tol: float = 1e-4,
        n_iter_no_change: int = 10,
        class_weight: Mapping[Any, float] | str | None = None,
    ) -> None:
        self.method = method
        self.method_options = method_options
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.alpha = alpha
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.random_state = random_state
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows ``X`` (N, F) with labels ``y`` (N,); a ``sample_weight`` of 2 counts the row twice."""
        self._check_arguments()
        X, y = validate_data(self, X, y, dtype=FLOATS, order="C")
        check_classification_targets(y)
        self.classes_ = unique_labels(y)
        rows = self._rows(X, y, sample_weight)
        order, best, waited = torch.arange(len(rows[1])), np.inf, 0
        self._random, self.n_iter_ = check_random_state(self.random_state), 0
        with self._drawing():
            self._start(rows)
            for epoch in range(self.max_iter):
                order = self._epoch(rows, order, 1 - epoch / self.max_iter if self.learning_rate == "linear" else 1.0)
                waited = waited + 1 if self.loss_curve_[-1] > best - self.tol else 0
                best = min(best, self.loss_curve_[-1])
                if waited > self.n_iter_no_change:
                    break
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one epoch on these rows; the first call needs ``classes``, the labels of all later calls."""
        self._check_arguments()
        if self.class_weight == "balanced":
            raise UserError("partial_fit sees only some rows at a time, so class_weight='balanced' needs fit")
        first = not hasattr(self, "_learner")
        if first and classes is None:
            raise UserError("the first call of partial_fit needs classes, the labels of all classes")
        X, y = validate_data(self, X, y, dtype=FLOATS if first else self._dtype, order="C", reset=first)
        check_classification_targets(y)
        if first:
            self.classes_ = unique_labels(classes)
        elif classes is not None and not np.array_equal(self.classes_, unique_labels(classes)):
            raise UserError(f"classes={classes!r} differs from the classes of the first call, {self.classes_}")
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise UserError(f"y has labels that are not among classes: {', '.join(map(repr, unknown.tolist()))}")
        rows = self._rows(X, y, sample_weight)
        if first:
            self._random, self.n_iter_ = check_random_state(self.random_state), 0
        with self._drawing():
            if first:
                self._start(rows)
            self._epoch(rows, torch.arange(len(rows[1])))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, (N,)."""
        chosen = self._logits(X).argmax(1).numpy()
        return self.classes_[chosen]  # type: ignore[no-any-return]

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The probability of each class, (N, K), in the order of ``classes_``."""
        return self._logits(X).softmax(1).numpy()

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """The logarithms of :meth:`predict_proba`, (N, K)."""
        return self._logits(X).log_softmax(1).numpy()

    @property
    def residual_labels_(self) -> NDArray[Any]:
        """What each class is taken for, (K, K): rows sum to 1, the diagonal is 0."""
        check_is_fitted(self)
        if not hasattr(self._learner.criterion, "residual_labels"):
            learning = [name for name, method in METHODS.items() if hasattr(method.criterion, "residual_labels")]
            raise AttributeError(f"method {self.method!r} learns no residual labels; {', '.join(learning)} do")
        labels: Tensor = self._learner.criterion.residual_labels()  # type: ignore[operator]
        return labels.numpy().copy()

    @property
    def confusions_(self) -> list[Confusion]:
        """The largest residual labels, largest first, as (label, taken_for, probability)."""
        labels = torch.from_numpy(self.residual_labels_)
        return largest(lambda rows: labels[rows.start : rows.stop], len(labels), CONFUSIONS, self.classes_.tolist())

    def _check_arguments(self) -> None:
        check_choice("activation", self.activation, tuple(ACTIVATIONS))
        check_choice("learning_rate", self.learning_rate, ("linear", "constant"))
        for name in ("alpha", "learning_rate_init", "tol"):
            check_number(name, getattr(self, name), 0, open_low=name == "learning_rate_init")
        counts: list[tuple[str, Any]] = [("max_iter", self.max_iter), ("n_iter_no_change", self.n_iter_no_change)]
        counts += [("hidden_layer_sizes", units) for units in self._hidden()]
        counts += [] if self.batch_size == "auto" else [("batch_size", self.batch_size)]
        for name, value in counts:
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be an int of at least 1, got {getattr(self, name)!r}")

    def _hidden(self) -> list[Any]:
        sizes = self.hidden_layer_sizes
        return list(sizes) if np.iterable(sizes) else [sizes]

    def _options(self) -> dict[str, Any]:
        """The options for the method's criterion, or an error that says what this classifier cannot do."""
        if find_method(self.method).learns_from is not None:
            alone = ", ".join(name for name, method in METHODS.items() if method.learns_from is None)
            raise UserError(
                f"method {self.method!r} learns from other networks, and AdaptiveLabelClassifier trains one alone: "
                f"choose one of {alone}"
            )
        if not isinstance(self.method_options, Mapping | None):
            raise UserError(f"method_options must be a dict or None, got {self.method_options!r}")
        options = {name: _plain(value) for name, value in (self.method_options or {}).items()}
        for name in TAKEN.keys() & options.keys():
            raise UserError(f"method_options: {name!r} is set by AdaptiveLabelClassifier{TAKEN[name]}")
        return options

    def _rows(self, X: NDArray[Any], y: NDArray[Any], sample_weight: Any) -> Rows:
        """The rows that count, as tensors."""
        if len(self.classes_) < 2:
            raise UserError(f"AdaptiveLabelClassifier needs at least 2 classes, got one class: {self.classes_[0]!r}")
        labels = np.searchsorted(self.classes_, y).astype(np.int64)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=X.dtype)
            if (weights < 0).any() or not weights.any():
                raise UserError("sample_weight must be at least 0 for every row, and above 0 for one of them")
            if not weights.all():
                kept = weights > 0
                X, labels, weights = X[kept], labels[kept], weights[kept]
            weights = torch.tensor(weights)
        return torch.from_numpy(np.require(X, requirements="W")), torch.from_numpy(labels), weights

    def _start(self, rows: Rows) -> None:
        """Make the network and the criterion, and forget all earlier training."""
        x, y, weights = rows
        self._dtype = x.numpy().dtype
        options = self._options()
        if self.class_weight is not None:
            options["weight"] = torch.tensor(self._class_weights(y, weights), dtype=torch.float32)
        self.loss_curve_: list[float] = []
        network = self._network([x.shape[1], *map(int, self._hidden()), len(self.classes_)]).to(x.dtype)
        criterion = create_loss(self.method, len(self.classes_), **options).to(x.dtype)
        own = [parameter for parameter in criterion.parameters() if parameter.requires_grad]
        coefs, biases = ([p for p in network.parameters() if p.dim() == dimensions] for dimensions in (2, 1))
        decayed, others = (coefs + own, biases) if criterion.like_network else (coefs, biases + own)
        groups = [{"params": decayed}, {"params": others}]
        self._learner = _Learner(network, criterion, torch.optim.Adam(groups, self.learning_rate_init, fused=True))

    def _network(self, sizes: list[int]) -> nn.Sequential:
        """Layers whose first weights are drawn as ``MLPClassifier`` does, from the same random numbers."""
        layers: list[nn.Module] = []
        for ins, outs in pairwise(sizes):
            layer = nn.Linear(ins, outs, dtype=torch.float64)
            bound = np.sqrt((2.0 if self.activation == "logistic" else 6.0) / (ins + outs))
            layer.weight.data = torch.from_numpy(self._random.uniform(-bound, bound, (ins, outs))).T.contiguous()
            layer.bias.data = torch.from_numpy(self._random.uniform(-bound, bound, outs))
            layers += [layer, ACTIVATIONS[self.activation]()]
        return nn.Sequential(*layers[:-1])

    def _class_weights(self, y: Tensor, weights: Tensor | None) -> NDArray[np.float64]:
        if self.class_weight == "balanced":
            counts = torch.bincount(y, weights, len(self.classes_)).double().numpy()
            return np.asarray(counts.sum() / (len(counts) * np.maximum(counts, counts[counts > 0].min())))
        return np.asarray(compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_[y.numpy()]))

    def _epoch(self, rows: Rows, order: Tensor, left: float = 1.0) -> Tensor:
        """Train on every row once, in a new order made from the last one; return it. ``left`` scales the rate."""
        count = len(order)
        size = min(200 if self.batch_size == "auto" else int(self.batch_size), count)
        if self.shuffle:
            order = order[torch.from_numpy(self._random.permutation(count))]
        for group in self._learner.optimizer.param_groups:
            group["lr"] = self.learning_rate_init * left
        network, criterion, optimizer = self._learner
        loss = 0.0
        for chosen in torch.split(order, size):
            x, y, weight = (None if part is None else part[chosen] for part in rows)
            weighed = len(chosen) if weight is None else weight.sum().item()
            optimizer.param_groups[0]["weight_decay"] = self.alpha / weighed
            optimizer.zero_grad()
            batch_loss = criterion(network(x), y, weight)
            batch_loss.backward()
            optimizer.step()
            loss += len(chosen) * batch_loss.item()
        if not np.isfinite(loss):
            raise UserError("the loss is not finite: scale the features, or lower learning_rate_init")
        criterion.epoch_end()
        self.loss_curve_.append(loss / count)
        self.n_iter_ += 1
        return order

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """A context in which torch's generator draws by ``random_state`` and the number of epochs so far."""
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.default_generator.manual_seed(copy.deepcopy(self._random).randint(2**31) + self.n_iter_)
            yield

    @torch.no_grad()
    def _logits(self, X: Any) -> Tensor:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=self._dtype, order="C", reset=False)
        rows = torch.split(torch.from_numpy(np.require(X, requirements="W")), ROWS_AT_ONCE)
        return torch.cat([self._learner.network(x) for x in rows])


def _plain(value: Any) -> Any:
    """A number of numpy as Python's, an array as a tensor, anything else as it is."""
    if isinstance(value, np.ndarray):
        return torch.tensor(value)
    return value.item() if isinstance(value, np.generic) else value
