"""The methods by name, as commands and configurations use them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, final

from torch import Tensor

from adaptive_labels.errors import UserError, check_switches, did_you_mean
from adaptive_labels.losses.base import Criterion, Terms, options_of
from adaptive_labels.losses.batch import Batch
from adaptive_labels.plugins import source_hash

LearnsFrom = Literal["teacher", "peers", "generations"]
Registered = TypeVar("Registered", bound=Callable[..., Any])

_NETWORK_OPTIONS = {
    "teacher": ("teacher", "teacher_model", "teacher_options"),
    "peers": ("peers", "peer_models"),
    "generations": ("generations",),
}


@dataclass(frozen=True)
class Method:
    """A criterion, the options that its name implies, and its main option to tune.

    ``search``: the lowest and highest value of the main option; steps are logarithmic if the lowest is above 0.
    ``learns_from``: other networks from which this one learns. ``registered``: what was registered, a criterion or a
    function; ``source_hash`` tells versions of the user's own apart, and is None for the package's.
    """

    name: str
    description: str
    criterion: type[Criterion]
    options: dict[str, Any] = field(default_factory=dict)
    main_option: str | None = None
    search: tuple[float, ...] = ()
    learns_from: LearnsFrom | None = None
    registered: Any = None
    source_hash: str | None = None

    @property
    def network_options(self) -> tuple[str, ...]:
        """The options about other networks; they belong to training, not to the criterion."""
        return _NETWORK_OPTIONS.get(self.learns_from or "", ())

    def trials(self, count: int) -> tuple[str, list[float]]:
        """The main option, and ``count`` values of it to try, evenly spread over the ``search`` range.

        >>> METHODS["slr"].trials(3)
        ('label_smoothing', [0.02, 0.1, 0.5])
        """
        if self.main_option is None:
            raise UserError(f"method {self.name!r} has no option to tune")
        low, high = self.search
        steps = [i / (count - 1) for i in range(count)] if count > 1 else [0.5]
        if low > 0:
            values = [low * (high / low) ** step for step in steps]
        else:
            values = [low + (high - low) * step for step in steps]
        return self.main_option, [float(f"{value:.3g}") for value in values]


METHODS: dict[str, Method] = {}


def register_method(name: str, description: str = "", **details: Any) -> Callable[[Registered], Registered]:
    """A decorator that registers a :class:`Criterion`, or a function, as the method called ``name``.

    The function is called as ``function(logits, target, **options)`` with logits (N, K) and class indices (N,) or
    probabilities (N, K), and returns the loss of each sample, (N,). Its other parameters are the method's options.

    Args:
        name: of a method that is not built in; registering it again replaces the earlier one.
        description: a line for a list of methods.
        details: ``main_option`` and ``search``, for `alr tune`, and the others of :class:`Method`.

    ::

        @register_method("squared", "the squared distance to the label")
        def squared(logits, target, scale=1.0):
            return scale * (logits.softmax(1) - F.one_hot(target, logits.shape[1])).square().sum(1)
    """

    def register(registered: Registered) -> Registered:
        found = source_hash(registered)
        if found is not None and name in METHODS and METHODS[name].source_hash is None:
            raise UserError(f"method {name!r} is built in: register your own under another name")
        is_class = inspect.isclass(registered)
        criterion: Any = registered if is_class else _criterion_of(name, registered)
        METHODS[name] = Method(name, description, criterion, registered=registered, source_hash=found, **details)
        return registered

    return register


class _OwnLoss(Criterion):
    """A criterion made of a function of the user's own."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, num_classes: int, **options: Any) -> None:
        common = inspect.signature(Criterion).parameters
        super().__init__(num_classes, **{key: value for key, value in options.items() if key in common})
        self.options = {key: value for key, value in options.items() if key not in common}

    @final
    def _terms(self, batch: Batch, world: int) -> Terms:
        loss = self.function(batch.logits, batch.target, **self.options)
        if not isinstance(loss, Tensor) or loss.shape != batch.logits.shape[:1]:
            what = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise UserError(
                f"method {self.method!r} must return one loss per sample, {tuple(batch.logits.shape[:1])}, not {what}"
            )
        return Terms(loss)


def _criterion_of(name: str, function: Callable[..., Any]) -> type[Criterion]:
    """The criterion class of a function, whose options are its parameters after the first two."""
    first, *common = inspect.signature(Criterion).parameters.values()
    own = list(inspect.signature(function).parameters.values())[2:]
    if lacking := [option.name for option in own if option.default is option.empty]:
        raise UserError(f"method {name!r}: its option {lacking[0]!r} needs a default value")
    options = [option.replace(kind=option.KEYWORD_ONLY) for option in (*own, *common)]
    attributes = {
        "function": staticmethod(function),
        "method": name,
        "__signature__": inspect.Signature([first, *options]),
        "__module__": function.__module__,
    }
    return type(f"{name} (own)", (_OwnLoss,), attributes)


def find_method(name: str) -> Method:
    """The method called ``name``, or a :class:`UserError` with the nearest name."""
    if name in METHODS:
        return METHODS[name]
    raise UserError(f"unknown method {name!r}{did_you_mean(name, METHODS)} (the methods are {', '.join(METHODS)})")


def create_loss(name: str, num_classes: int, **options: Any) -> Criterion:
    """The criterion of the method called ``name``; ``options`` are its arguments and override the method's own.

    >>> create_loss("alr-s", 10)
    AdaptiveLabelLoss(
      10, label_smoothing=0.1
      (accuracy): TrainingAccuracy()
    )
    """
    method = find_method(name)
    known = options_of(method.criterion)
    for option in options:
        if option in method.network_options:
            raise UserError(
                f"option {option!r} of method {name!r} is for training; its criterion is called with teacher_logits="
            )
        if option not in known:
            names = sorted({*known, *method.network_options})
            hint = did_you_mean(option, names)
            raise UserError(f"unknown option {option!r} of method {name!r}{hint} (it takes {', '.join(names)})")
    check_switches(options, known)
    return method.criterion(num_classes, **{**method.options, **options})
