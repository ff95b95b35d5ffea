"""A DCGAN (Radford et al., 2015) that learns to draw 64x64 digits, in Keras: two models, each with an
optimizer of its own, in a train_step of its own."""

import keras
import tensorflow as tf
from keras import layers

import keras_common as common


def generator(noise, width):
    model = keras.Sequential([keras.Input((1, 1, noise))], name="generator")
    for number, filters in enumerate((width * 8, width * 4, width * 2, width)):
        model.add(layers.Conv2DTranspose(filters, 4, 1 if number == 0 else 2,
                                         "valid" if number == 0 else "same", use_bias=False, name=f"up{number}"))
        model.add(layers.BatchNormalization(name=f"up{number}_norm"))
        model.add(layers.ReLU())
    model.add(layers.Conv2DTranspose(3, 4, 2, "same", use_bias=False, activation="tanh", name="image"))
    return model


def discriminator(width):
    model = keras.Sequential([keras.Input((64, 64, 3))], name="discriminator")
    for number, filters in enumerate((width, width * 2, width * 4, width * 8)):
        model.add(layers.Conv2D(filters, 4, 2, "same", use_bias=False, name=f"down{number}"))
        if number > 0:
            model.add(layers.BatchNormalization(name=f"down{number}_norm"))
        model.add(layers.LeakyReLU(0.2))
    model.add(layers.Conv2D(1, 4, use_bias=False, name="verdict"))
    model.add(layers.Flatten())
    return model


class Gan(keras.Model):
    def __init__(self, draw, judge, noise):
        super().__init__()
        self.draw, self.judge, self.noise = draw, judge, noise
        self.random = keras.random.SeedGenerator(1)
        self.loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

    def compile(self, draw_optimizer, judge_optimizer):
        super().compile()
        self.draw_optimizer, self.judge_optimizer = draw_optimizer, judge_optimizer

    def train_step(self, batch):
        real, _ = batch
        samples = tf.shape(real)[0]
        noise = keras.random.normal((samples, 1, 1, self.noise), seed=self.random)
        true, false = tf.ones((samples, 1)), tf.zeros((samples, 1))
        with tf.GradientTape() as tape:
            drawn = self.draw(noise, training=True)
            judge_loss = (self.loss_of(true, self.judge(real, training=True)) +
                          self.loss_of(false, self.judge(tf.stop_gradient(drawn), training=True)))
        weights = self.judge.trainable_weights
        self.judge_optimizer.apply(tape.gradient(judge_loss, weights), weights)
        with tf.GradientTape() as tape:
            draw_loss = self.loss_of(true, self.judge(self.draw(noise, training=True), training=True))
        weights = self.draw.trainable_weights
        self.draw_optimizer.apply(tape.gradient(draw_loss, weights), weights)
        return {"loss": judge_loss, "generator_loss": draw_loss}


def main():
    parser = common.options(__doc__, batch=64)
    parser.add_argument("--width", type=int, default=64, help="channels of the layers next to the image")
    parser.add_argument("--noise", type=int, default=100, help="inputs of the generator")
    args = parser.parse_args()
    common.begin(args)

    model = Gan(generator(args.noise, args.width), discriminator(args.width), args.noise)
    optimizers = [keras.optimizers.Adam(2e-4, beta_1=0.5, name=name) for name in ("draw_adam", "judge_adam")]
    model.compile(*optimizers)
    run = common.Run(args, "loss", "generator_loss")
    model.fit(common.digits(64, args), steps_per_epoch=args.steps, epochs=1, verbose=0, callbacks=[run])
    run.finish([model.draw, model.judge], optimizers)


if __name__ == "__main__":
    main()
