"""Networks of other libraries, by prefix; a library is imported only when one of its networks is used.

>>> sorted(LIBRARIES)
['hf', 'timm', 'torchvision']
"""

from functools import partial
from typing import Any

from torch import nn

from adaptive_labels.errors import UserError, did_you_mean
from adaptive_labels.lab.models.features import ENCODER_LR, HEAD_EPOCHS, on_features
from adaptive_labels.lab.models.pretrained import hub
from adaptive_labels.lab.models.registry import LIBRARIES, ModelEntry


def _find_external(name: str) -> ModelEntry:
    """A network of timm or torchvision. It starts at random, from `--weights`, or as timm's with `pretrained`."""
    library, _, own = name.partition(":")
    module = hub.import_library(library, name)
    known = module.list_models()
    # timm also takes the name of trained weights behind a dot, which choose a variant's settings.
    if own.partition(".")[0] not in known:
        raise UserError(f"{library} has no model {own!r}{did_you_mean(own, known, f'{library}:')}")
    if library == "timm":
        return ModelEntry(name, "image", LIBRARIES[library][0], partial(_from_timm, module, own), "pixels", name)
    return ModelEntry(name, "image", LIBRARIES[library][0], partial(_from_torchvision, module, own), "pixels")


def _find_encoder(name: str) -> ModelEntry:
    """A head on an encoder of Transformers."""
    own = name.partition(":")[2]
    kind = hub.kind_of(own)

    def load() -> nn.Module:
        return (hub.text_backbone(own) if kind == "text" else hub.image_backbone(own)).load()

    return ModelEntry(name, kind, LIBRARIES["hf"][0], partial(on_features, load), f"hf-{kind}:{own}")


def _from_timm(
    module: Any,
    own: str,
    num_classes: int,
    in_channels: int = 3,
    drop_rate: float | None = None,
    drop_path_rate: float | None = None,
    img_size: int | None = None,
    pretrained: bool = False,
    in_features: int = 0,
    hidden: int = 512,
    dropout: float = 0.5,
    tune: bool = False,
    encoder_lr: float = ENCODER_LR,
    head_epochs: int = HEAD_EPOCHS,
) -> nn.Module:
    """Build a network of timm; what is None is not passed on, since not every network has every option."""
    if pretrained:
        load = hub.timm_backbone(own).load
        return on_features(load, num_classes, in_features, hidden, dropout, tune, encoder_lr, head_epochs)
    given = {"drop_rate": drop_rate, "drop_path_rate": drop_path_rate, "img_size": img_size}
    options = {name: value for name, value in given.items() if value is not None}
    model: nn.Module = module.create_model(own, num_classes=num_classes, in_chans=in_channels, **options)
    return model


def _from_torchvision(module: Any, own: str, num_classes: int, in_channels: int = 3) -> nn.Module:
    if in_channels != 3:
        raise ValueError(f"in_channels is {in_channels}; torchvision's networks read 3 channels only")
    model: nn.Module = module.get_model(own, num_classes=num_classes)
    return model


LIBRARIES["hf"] = ("text or image: a head on any encoder of Transformers: hf:FOLDER, hf:NAME", _find_encoder)
LIBRARIES["timm"] = ("image: any network of timm, at random or pretrained: timm:resnet18, …", _find_external)
LIBRARIES["torchvision"] = ("image: any classifier of torchvision: torchvision:resnet18, …", _find_external)
