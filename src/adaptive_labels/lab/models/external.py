"""Networks of other libraries, by prefix; a library is imported only when one of its networks is used.

>>> sorted(LIBRARIES)
['hf', 'timm']
"""

from functools import partial
from typing import Any

from torch import nn

from adaptive_labels.errors import UserError, did_you_mean
from adaptive_labels.lab.models.features import ENCODER_LR, HEAD_EPOCHS, on_features
from adaptive_labels.lab.models.pretrained import hub
from adaptive_labels.lab.models.registry import LIBRARIES, ModelEntry


def _find_timm(full_name: str) -> ModelEntry:
    """A network of timm, which starts at random, from `--weights`, or with timm's weights (`pretrained`)."""
    timm, name = hub.import_library("timm", full_name), full_name.partition(":")[2]
    known = timm.list_models()
    # timm also takes the name of trained weights behind a dot, which choose a variant's settings.
    if name.partition(".")[0] not in known:
        raise UserError(f"timm has no model {name!r}{did_you_mean(name, known, 'timm:')}")
    return ModelEntry(full_name, "image", LIBRARIES["timm"][0], partial(_from_timm, timm, name), "pixels", full_name)


def _from_timm(
    timm: Any,
    name: str,
    num_classes: int,
    in_channels: int = 3,
    pretrained: bool = False,
    in_features: int = 0,
    hidden: int = 512,
    dropout: float = 0.5,
    tune: bool = False,
    encoder_lr: float = ENCODER_LR,
    head_epochs: int = HEAD_EPOCHS,
) -> nn.Module:
    if pretrained:
        load = hub.timm_backbone(name).load
        return on_features(load, num_classes, in_features, hidden, dropout, tune, encoder_lr, head_epochs)
    model: nn.Module = timm.create_model(name, num_classes=num_classes, in_chans=in_channels)
    return model


def _find_encoder(full_name: str) -> ModelEntry:
    """A head on an encoder of Transformers."""
    name = full_name.partition(":")[2]
    kind = hub.kind_of(name)

    def load() -> nn.Module:
        return (hub.text_backbone(name) if kind == "text" else hub.image_backbone(name)).load()

    return ModelEntry(full_name, kind, LIBRARIES["hf"][0], partial(on_features, load), f"hf-{kind}:{name}")


LIBRARIES["hf"] = ("text or image: a head on any encoder of Transformers: hf:FOLDER, hf:NAME", _find_encoder)
LIBRARIES["timm"] = ("image: any network of timm, at random or pretrained: timm:resnet18, …", _find_timm)
