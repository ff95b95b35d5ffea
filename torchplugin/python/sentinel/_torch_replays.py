"""Tells of what a replay of ops could not see: that the program reaches a tensor's memory past the dispatcher, and
that it changes how ops compute. Both are told before they happen."""
import ctypes
import functools

# They give an address away: for good, or to be used at once.
_LASTING = ("numpy", "__dlpack__")
_AT_ONCE = ("data_ptr", "apply_", "map_")
# By what they change, any op may give other bytes.
_SETTINGS = ("set_num_threads", "set_flush_denormal")
_OWN_SETTINGS = ("_set_blas_preferred_backend", "_set_cpu_allow_fp16_reduced_precision_reduction",
                 "_set_cublas_allow_bf16_reduced_precision_reduction", "_set_cublas_allow_fp16_accumulation",
                 "_set_cublas_allow_fp16_reduced_precision_reduction", "_set_cublas_allow_tf32",
                 "_set_cudnn_allow_tf32", "_set_cudnn_benchmark", "_set_cudnn_depthwise_kernel",
                 "_set_cudnn_deterministic", "_set_cudnn_enabled", "_set_default_dtype", "_set_default_tensor_type",
                 "_set_deterministic_algorithms", "_set_float32_matmul_precision", "_set_fp32_precision_setter",
                 "_set_linalg_preferred_backend", "_set_mkldnn_deterministic", "_set_mkldnn_enabled",
                 "_set_nnpack_enabled", "_set_onednn_allow_tf32")


def tell(torch, adaptor):
    """Once, before the program trains."""
    adaptor.sentinel_torch_reached.argtypes = [ctypes.c_void_p, ctypes.c_int]
    storage_of = getattr(torch.Tensor, "untyped_storage", None) or torch.Tensor.storage

    def address_in(storage):  # past what is told below
        return torch._C.StorageBase.data_ptr(getattr(storage, "_storage", storage))

    as_plain = getattr(torch._C, "DisableTorchFunctionSubclass", None) or torch._C.DisableTorchFunction

    def reached(tensor, lasting):
        try:
            with as_plain():  # a subclass need not hear of it
                address = address_in(storage_of(tensor)) if tensor.device.type in ("cpu", "cuda") else None
        except (RuntimeError, NotImplementedError):  # it has no storage: the call that is told says so
            return
        if address:
            adaptor.sentinel_torch_reached(address, lasting)

    def telling(method, lasting):
        @functools.wraps(method)
        def told(tensor, *args, **kwargs):
            if isinstance(tensor, torch.Tensor):
                reached(tensor, lasting)
            return method(tensor, *args, **kwargs)
        return told

    for name in _LASTING:
        setattr(torch.Tensor, name, telling(getattr(torch.Tensor, name), True))
    for name in _AT_ONCE:
        setattr(torch.Tensor, name, telling(getattr(torch.Tensor, name), False))

    untyped = getattr(torch, "UntypedStorage", None)
    if untyped is not None:
        address_of = untyped.data_ptr

        @functools.wraps(address_of)
        def told_of_storage(storage):
            address = address_of(storage)
            if address and storage.device.type in ("cpu", "cuda"):
                adaptor.sentinel_torch_reached(address, False)
            return address
        untyped.data_ptr = told_of_storage

    for module in (torch, torch.utils.dlpack):
        if hasattr(module, "to_dlpack"):
            module.to_dlpack = telling(module.to_dlpack, True)

    def changing(function):
        @functools.wraps(function)
        def changes(*args, **kwargs):
            adaptor.sentinel_torch_settings_change()
            return function(*args, **kwargs)
        return changes

    for module, names in ((torch, _SETTINGS), (torch._C, _OWN_SETTINGS)):
        for name in names:
            if hasattr(module, name):
                setattr(module, name, changing(getattr(module, name)))
    for backend in (torch.backends.cudnn, torch.backends.mkldnn):  # their properties have the functions from before
        for each in vars(type(backend)).values():
            if callable(getattr(each, "setter", None)) and not isinstance(each, property):
                each.setter = changing(each.setter)
