// A CUDA device guard and CUDA hooks that do nothing. Fake CUDA tensors need the guard, and autograd needs an accelerator.
// They call no driver. The library is built once for each torch, and loaded before torch and after libtorch_cuda.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
constexpr c10::DeviceIndex kDevices = 8;
thread_local c10::DeviceIndex current = 0;

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = current;
    uncheckedSetDevice(device);
    return c10::Device(c10::DeviceType::CUDA, before);
  }
  c10::Device getDevice() const override { return c10::Device(c10::DeviceType::CUDA, current); }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index() < 0 ? 0 : device.index(); }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, getDevice()); }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
};
}  // namespace

namespace c10 {
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
}

namespace at {
struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return false; }
  DeviceIndex deviceCount() const override { return kDevices; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  // without override, because some versions of torch lack these functions
  long versionCuDNN() const { return 0; }
  long versionRuntimeCuDNN() const { return 0; }
  long versionCuDNNFrontend() const { return 0; }
};
C10_REGISTER_CLASS_WITH_PRIORITY(CUDAHooksRegistry, CUDAHooks, c10::REGISTRY_PREFERRED, CUDAHooks);
}  // namespace at

extern "C" int reprokit_is_in_place() { return dynamic_cast<const at::CUDAHooks*>(&at::detail::getCUDAHooks()) != nullptr; }
