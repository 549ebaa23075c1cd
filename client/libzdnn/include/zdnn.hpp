/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zdnn.hpp - zDNN for C++11 and later: ztensors that free themselves, statuses that throw.
 *
 * Header-only, over zdnn.h alone; works with IBM's own library too.
 */
#ifndef ZDNN_HPP
#define ZDNN_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <vector>

#include "zdnn.h"

namespace zdnn {

/* A status that is neither ZDNN_OK nor a warning. */
class Error : public std::runtime_error {
 public:
  explicit Error(zdnn_status status)
      : std::runtime_error(zdnn_get_status_message(status)), status_(status) {}

  zdnn_status status() const noexcept { return status_; }

 private:
  zdnn_status status_;
};

/* Whether a status is a warning: outputs are valid. */
inline bool is_warning(zdnn_status status) noexcept {
  return (static_cast<uint32_t>(status) & 0xFFFF0000u) == ZDNN_WARNING;
}

/* Returns ZDNN_OK or the warning; throws Error for anything else. */
inline zdnn_status check(zdnn_status status) {
  if (status != ZDNN_OK && !is_warning(status)) {
    throw Error(status);
  }
  return status;
}

/* A ztensor that owns its descriptors and its sticks. It can be moved, not copied. */
class Tensor {
 public:
  /* Describes user data of `dims` elements, outermost first, and allocates sticks for it. */
  Tensor(zdnn_data_layouts layout, zdnn_data_types type, std::initializer_list<uint32_t> dims)
      : held_(new Held()) {
    describe(layout, type, dims);
    check(zdnn_generate_transformed_desc(&held_->pre, &held_->transformed));
    allocate();
  }

  /* Gates of a recurrent layer, side by side. */
  Tensor(zdnn_data_layouts layout, zdnn_data_types type, std::initializer_list<uint32_t> dims,
         zdnn_concat_info info)
      : held_(new Held()) {
    describe(layout, type, dims);
    check(zdnn_generate_transformed_desc_concatenated(&held_->pre, info, &held_->transformed));
    allocate();
  }

  zdnn_ztensor *get() noexcept { return &held_->ztensor; }
  const zdnn_ztensor *get() const noexcept { return &held_->ztensor; }

  /* Converts user data to sticks: one array, or one per gate. Anew, if it is done already. */
  template <typename... Arrays>
  Tensor &fill(const Arrays *...arrays) {
    zdnn_reset_ztensor(get());
    check(zdnn_transform_ztensor(get(), static_cast<const void *>(arrays)...));
    return *this;
  }

  /* Converts sticks back; `count` is how many elements the user's view has. */
  template <typename T>
  std::vector<T> read(std::size_t count) const {
    std::vector<T> data(count);
    check(zdnn_transform_origtensor(get(), data.data()));
    return data;
  }

 private:
  struct Held {
    zdnn_tensor_desc pre;
    zdnn_tensor_desc transformed;
    zdnn_ztensor ztensor;
    bool allocated;

    Held() : pre(), transformed(), ztensor(), allocated(false) {}
    Held(const Held &) = delete;
    Held &operator=(const Held &) = delete;
    ~Held() {
      if (allocated) {
        zdnn_free_ztensor_buffer(&ztensor);
      }
    }
  };

  void describe(zdnn_data_layouts layout, zdnn_data_types type,
                std::initializer_list<uint32_t> dims) {
    if (dims.size() == 0 || dims.size() > 4) {
      throw std::invalid_argument("dims: 1 to 4 are allowed");
    }
    std::array<uint32_t, 4> d = {{0, 0, 0, 0}};
    std::size_t at = 0;
    for (uint32_t size : dims) {
      d[at++] = size;
    }
    zdnn_init_pre_transformed_desc(layout, type, &held_->pre, d[0], d[1], d[2], d[3]);
  }

  void allocate() {
    check(zdnn_init_ztensor_with_malloc(&held_->pre, &held_->transformed, &held_->ztensor));
    held_->allocated = true;
  }

  std::unique_ptr<Held> held_;
};

}  // namespace zdnn

#endif
