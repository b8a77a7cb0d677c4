// The kernels of batch normalisation on random values, against the formula in 64 bits: values, running statistics and all
// gradients. Prints the largest difference of each, relative to the largest value; `kernels.cu` is their source.

#include "device.h"

#include "kernels.cu"

#include <algorithm>
#include <cstdio>
#include <random>

namespace {

constexpr long ROWS = 300;
constexpr int CHANNELS = 20, BLOCKS = 3, WIDE = 4, HIGH = 8;
constexpr double EPS = 1e-3, MOMENTUM = 0.1;

using Values = std::vector<float>;

Values random_values(std::size_t count, unsigned seed, double middle, double deviation) {
  std::mt19937 source(seed);
  std::normal_distribution<double> draw(middle, deviation);
  Values values(count);
  for (auto &value : values) {
    value = float(draw(source));
  }
  return values;
}

double activation(double z) {
  switch (ACTIVATION) {
  case 1: return std::max(z, 0.0);
  case 2: return std::clamp(z, 0.0, 6.0);
  case 3: return z * std::clamp(z + 3.0, 0.0, 6.0) / 6.0;
  case 4: return z / (1.0 + std::exp(-z));
  default: return z;
  }
}

// By central differences: the test knows no derivative that the kernels could have wrong as well.
double derivative(double z) { return (activation(z + 1e-6) - activation(z - 1e-6)) / 2e-6; }

template <typename Found> void compare(const char *name, const Found &found, const std::vector<double> &expected) {
  double most = 0.0, apart = 0.0;
  for (std::size_t place = 0; place < expected.size(); ++place) {
    most = std::max(most, std::abs(expected[place]));
    const double difference = std::abs(found[place] - expected[place]);
    apart = std::isnan(difference) ? INFINITY : std::max(apart, difference);
  }
  std::printf("%s %g\n", name, apart / most);
}

} // namespace

int main() {
  const std::size_t count = ROWS * CHANNELS;
  // Far from zero, where the difference of two large sums would be lost.
  const auto x = random_values(count, 1, 30.0, 2.0), added = random_values(count, 2, 0.0, 2.0);
  const auto gradient = random_values(count, 3, 0.1, 1.0), weight = random_values(CHANNELS, 4, 3.0, 0.3);
  const auto bias = random_values(CHANNELS, 5, 0.2, 0.5);
  Values running_mean(CHANNELS, 0.0f), running_var(CHANNELS, 1.0f), numbers(4 * CHANNELS), partial(2 * BLOCKS * CHANNELS);
  Values y(count), masked(count), of_x(count), of_weight(CHANNELS), of_bias(CHANNELS), plane(2 * CHANNELS);
  const auto packs = [](const Values &values) { return reinterpret_cast<const Pack *>(values.data()); };
  const auto places = [](Values &values) { return reinterpret_cast<Pack *>(values.data()); };
  const Three grid{(CHANNELS / VEC + WIDE - 1) / WIDE, BLOCKS}, block{WIDE, HIGH};
  const Three few{(CHANNELS + 31) / 32, 1}, finishing{32, 8};

  launch(grid, block, [&] { statistics(packs(x), partial.data(), ROWS, CHANNELS); });
  launch(few, finishing, [&] {
    finish_statistics(partial.data(), BLOCKS, packs(x), weight.data(), bias.data(), running_mean.data(),
                      running_var.data(), numbers.data(), ROWS, CHANNELS, MOMENTUM, EPS);
  });
  launch(grid, block, [&] { normalise(packs(x), packs(added), numbers.data(), places(y), ROWS, CHANNELS); });
  launch(grid, block, [&] {
    gradient_sums(packs(gradient), packs(x), packs(y), numbers.data(), places(masked), partial.data(), ROWS, CHANNELS);
  });
  launch(few, finishing, [&] {
    finish_gradients(partial.data(), BLOCKS, numbers.data(), of_weight.data(), of_bias.data(), plane.data(), ROWS,
                     CHANNELS);
  });
  const auto &before = RESIDUAL ? masked : gradient;
  launch(grid, block, [&] {
    gradients(packs(before), packs(x), numbers.data(), plane.data(), places(of_x), ROWS, CHANNELS);
  });

  std::vector<double> expected_y(count), expected_x(count), expected_masked(count);
  std::vector<double> expected_weight(CHANNELS), expected_bias(CHANNELS), mean_after(CHANNELS), var_after(CHANNELS);
  for (int channel = 0; channel < CHANNELS; ++channel) {
    double mean = 0.0, variance = 0.0;
    for (long row = 0; row < ROWS; ++row) {
      mean += x[row * CHANNELS + channel] / double(ROWS);
    }
    for (long row = 0; row < ROWS; ++row) {
      variance += std::pow(x[row * CHANNELS + channel] - mean, 2) / ROWS;
    }
    const double inverse = 1.0 / std::sqrt(variance + EPS);
    for (long row = 0; row < ROWS; ++row) {
      const long at = row * CHANNELS + channel;
      const double hat = (x[at] - mean) * inverse;
      const double z = hat * weight[channel] + bias[channel] + (RESIDUAL ? added[at] : 0.0);
      expected_y[at] = activation(z);
      expected_masked[at] = gradient[at] * derivative(z);
      expected_bias[channel] += expected_masked[at];
      expected_weight[channel] += expected_masked[at] * hat;
    }
    for (long row = 0; row < ROWS; ++row) {
      const long at = row * CHANNELS + channel;
      const double hat = (x[at] - mean) * inverse;
      expected_x[at] = weight[channel] * inverse *
                       (expected_masked[at] - expected_bias[channel] / ROWS - hat * expected_weight[channel] / ROWS);
    }
    mean_after[channel] = MOMENTUM * mean;
    var_after[channel] = (1.0 - MOMENTUM) + MOMENTUM * variance * ROWS / (ROWS - 1);
  }
  compare("values", y, expected_y);
  compare("running_mean", running_mean, mean_after);
  compare("running_var", running_var, var_after);
  compare("of_values", of_x, expected_x);
  compare("of_weight", of_weight, expected_weight);
  compare("of_bias", of_bias, expected_bias);
  if (RESIDUAL) {
    compare("of_residual", masked, expected_masked);
  }
}
