"""The methods by name, as commands and configurations use them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from adaptive_labels.errors import UserError, check_switches, did_you_mean
from adaptive_labels.losses.base import Criterion, options_of

Guide = Literal["teacher", "peers", "generations"]
C = TypeVar("C", bound=Criterion)

_NETWORK_OPTIONS = {
    "teacher": ("teacher", "teacher_run", "teacher_model", "teacher_options"),
    "peers": ("peers", "peer_models"),
    "generations": ("generations",),
}


@dataclass(frozen=True)
class Method:
    """A criterion, the options that its name implies, and its main option to tune.

    ``search``: the lowest and highest value of the main option; steps are logarithmic if the lowest is above 0.
    ``guide``: what the network learns from besides the labels.
    """

    name: str
    description: str
    criterion: type[Criterion]
    options: dict[str, Any] = field(default_factory=dict)
    main_option: str | None = None
    search: tuple[float, ...] = ()
    guide: Guide | None = None

    @property
    def network_options(self) -> tuple[str, ...]:
        """The options about other networks; they belong to training, not to the criterion."""
        return _NETWORK_OPTIONS.get(self.guide or "", ())

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


def register_method(name: str, description: str, **details: Any) -> Callable[[type[C]], type[C]]:
    """A decorator that registers a criterion as ``name``; the arguments are those of :class:`Method`."""

    def register(criterion: type[C]) -> type[C]:
        METHODS[name] = Method(name, description, criterion, **details)
        return criterion

    return register


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
                f"option {option!r} of method {name!r} is for training; its criterion is called with guide="
            )
        if option not in known:
            names = sorted({*known, *method.network_options})
            hint = did_you_mean(option, names)
            raise UserError(f"unknown option {option!r} of method {name!r}{hint} (it takes {', '.join(names)})")
    check_switches(options, known)
    return method.criterion(num_classes, **{**method.options, **options})
