"""A CIFAR ResNet (He et al., 2015: 6n+2 layers) on handwritten digits, in Keras."""

import keras
from keras import layers

import keras_common as common


def convolution(x, filters, size, stride, name):
    return layers.Conv2D(filters, size, stride, padding="same", use_bias=False, name=name)(x)


def block(x, filters, stride, name):
    """Two 3x3 convolutions and a shortcut (a 1x1 convolution where the shape changes)."""
    out = convolution(x, filters, 3, stride, f"{name}_conv1")
    out = layers.ReLU()(layers.BatchNormalization(name=f"{name}_norm1")(out))
    out = convolution(out, filters, 3, 1, f"{name}_conv2")
    out = layers.BatchNormalization(name=f"{name}_norm2")(out)
    if stride > 1 or x.shape[-1] != filters:
        x = convolution(x, filters, 1, stride, f"{name}_shortcut")
    return layers.ReLU()(layers.Add()([out, x]))


def resnet(depth, width, classes=10):
    if depth < 8 or (depth - 2) % 6:
        raise SystemExit(f"a CIFAR ResNet has 6n+2 layers; {depth} is not of that form")
    inputs = keras.Input((32, 32, 3))
    x = convolution(inputs, width, 3, 1, "stem")
    x = layers.ReLU()(layers.BatchNormalization(name="stem_norm")(x))
    for stage in range(3):
        for position in range((depth - 2) // 6):
            x = block(x, width << stage, 2 if stage and position == 0 else 1, f"s{stage}b{position}")
    outputs = layers.Dense(classes, name="head")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, outputs, name="resnet")


def main():
    parser = common.options(__doc__, batch=128)
    parser.add_argument("--depth", type=int, default=32, help="20, 32, 44, 56, 110, ...: 6n+2")
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    args = parser.parse_args()
    common.begin(args)

    model = resnet(args.depth, args.width)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    common.Run(args).fit(model, common.digits(32, args))


if __name__ == "__main__":
    main()
