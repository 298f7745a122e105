from torch import nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign


class TinyBackbone(nn.Module):
    out_channels = 16

    def __init__(self):
        super().__init__()
        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False),
                                 nn.BatchNorm2d(o), nn.ReLU(inplace=True))
        self.body = nn.Sequential(block(3, 8), block(8, 16), block(16, self.out_channels))

    def forward(self, x):
        return self.body(x)


def build(num_classes, size):
    anchors = AnchorGenerator(sizes=((8, 16, 32),), aspect_ratios=((0.5, 1.0, 2.0),))
    pool = MultiScaleRoIAlign(featmap_names=["0"], output_size=4, sampling_ratio=2)
    return FasterRCNN(
        TinyBackbone(), num_classes=num_classes,
        rpn_anchor_generator=anchors, box_roi_pool=pool,
        min_size=size, max_size=size,
        rpn_pre_nms_top_n_train=100, rpn_post_nms_top_n_train=50,
        rpn_pre_nms_top_n_test=50, rpn_post_nms_top_n_test=25,
        box_batch_size_per_image=16,
    )
