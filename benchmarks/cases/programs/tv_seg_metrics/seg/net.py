from torch import nn
from torchvision.models import mobilenet_v3_small
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.segmentation.deeplabv3 import DeepLabHead
from torchvision.models.segmentation.fcn import FCNHead
from torchvision.models.segmentation._utils import _SimpleSegmentationModel


class Segmenter(_SimpleSegmentationModel):
    pass


def build(num_classes, head="fcn"):
    """The first blocks of MobileNetV3-small with an FCN or DeepLab head."""
    features = mobilenet_v3_small(weights=None).features[:4]
    backbone = IntermediateLayerGetter(features, return_layers={"1": "aux", "3": "out"})
    if head == "fcn":
        classifier = FCNHead(24, num_classes)
    else:
        classifier = DeepLabHead(24, num_classes)
    aux = FCNHead(16, num_classes)
    return Segmenter(backbone, classifier, aux)
