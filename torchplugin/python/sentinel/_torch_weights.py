"""Weights that are not ours: parameters and buffers in memory that PyTorch's allocator did not give, as `safetensors`,
`torch.load(mmap=True)` and `from_numpy` make them. Before the first step they are brought into the arena, once and to
the same bits, if nobody can reach their memory in another way. docs/design/foreign-weights.md says how that is known."""
import bisect
import collections
import ctypes
import errno
import gc
import mmap
import sys
import weakref

try:
    from . import _attach
except ImportError:
    import _attach

_NONE, _OURS, _SLICE, _OBJECT, _UNKNOWN = range(5)  # as torch_weights.h names them


class _Facts(ctypes.Structure):
    """Of a tensor, as torch_weights.h has them."""
    _fields_ = [("storage", ctypes.c_void_p), ("address", ctypes.c_size_t), ("bytes", ctypes.c_size_t),
                ("owner", ctypes.c_void_p), ("bases", ctypes.c_void_p * 2), ("uses", ctypes.c_size_t),
                ("storage_uses", ctypes.c_size_t), ("owner_uses", ctypes.c_size_t), ("memory", ctypes.c_int32),
                ("owns_wrapper", ctypes.c_int32), ("owner_maps_file", ctypes.c_int32)]

    @property
    def foreign(self):
        return self.memory > _OURS


# Why weights are left alone.
_LATE = "they were found after the first step"
_UNKNOWN_OWNER = "it is not known whose memory it is"
_SHARED = "files or other processes see what is written there"
_READ_ONLY = "it cannot be written"
_REACHABLE = "something else may use it as well (an array of numpy, an open file, a variable)"
_UNCOUNTED = "what holds a tensor cannot be counted in this PyTorch"
_NO_ROOM = "the arena has no room"


class Weights:
    """Finds them and brings them. All of it runs in the thread that trains, which keeps Python's lock."""

    def __init__(self, torch, adaptor):
        self._torch = torch
        self._library = ctypes.PyDLL(adaptor._name, handle=adaptor._handle)
        address = ctypes.c_void_p
        self._library.sentinel_torch_is_foreign.argtypes = [address]
        self._library.sentinel_torch_tensor_facts.argtypes = [address, ctypes.POINTER(_Facts)]
        self._library.sentinel_torch_learn_slice.argtypes = [address, address]
        self._library.sentinel_torch_learn_object.argtypes = [address, address]
        self._library.sentinel_torch_bring.argtypes = [address, ctypes.c_size_t, ctypes.c_int]
        self._counts = None  # whether what holds a tensor can be counted; None: nobody needed it yet
        self._told = set()

    def of_module(self, module):
        self._found([*module.parameters(), *module.buffers()])

    def of_optimizer(self, optimizer):
        self._found([one for group in optimizer.param_groups for one in group["params"]])

    def _found(self, tensors):
        is_foreign, left = self._library.sentinel_torch_is_foreign, {}
        try:
            with self._torch._C.DisableTorchFunction():  # a subclass's function is not to hear of this
                weights = {one._cdata: one for one in tensors if is_foreign(one._cdata)}
                left = self._bring(weights) if weights else {}
        except Exception as error:  # of a tensor of an unknown kind: the program goes on as it would
            left = {f"{type(error).__name__}: {error}": [0]}
        for reason, sizes in left.items():
            if reason not in self._told:
                self._told.add(reason)
                _attach.tell(f"{len(sizes)} storages of weights, {sum(sizes)} bytes, stay outside of the budget, in "
                             f"memory that is not Sentinel's: {reason}")

    def _bring(self, weights):
        """Address -> tensor. Answers the bytes of each storage that is left alone, by the reason."""
        left = collections.defaultdict(list)
        late = self._library.sentinel_torch_step_ended()
        if late and _LATE in self._told:
            return left
        counts = not late and self._can_count()
        census, memory = Census(self._torch, self._library, weights), PrivateMemory()
        storages = {one.storage: one for one in map(census.facts.get, weights) if one.foreign}.values()
        reasons = [_LATE if late else memory.why_not(one) or self._why_not(one, census, counts, weights)
                   for one in storages]
        for facts, reason in zip(storages, reasons):
            failed = 0
            if not reason:
                failed = self._library.sentinel_torch_bring(facts.storage, facts.storage_uses, census.maps_file(facts))
            if reason or failed:
                left[reason or (_NO_ROOM if failed == -errno.ENOMEM else _REACHABLE)].append(facts.bytes)
        return left

    @staticmethod
    def _why_not(facts, census, counts, weights):
        if facts.memory == _UNKNOWN:
            return _UNKNOWN_OWNER
        if not counts:
            return _UNCOUNTED
        return None if census.is_alone(facts, weights) else _REACHABLE

    def _can_count(self):
        if self._counts is None:
            self._counts = False
            self._counts = self._learn() and self._tells_apart()
        return self._counts

    def _learn(self):
        """Shows the adaptor what PyTorch makes of memory that is not its own."""
        torch, library = self._torch, self._library
        whole, buffer = torch.UntypedStorage(16), bytearray(16)
        part, tensor = whole[4:12], torch.frombuffer(buffer, dtype=torch.uint8)
        known = (library.sentinel_torch_learn_slice(part._cdata, whole._cdata)
                 and library.sentinel_torch_learn_object(tensor._cdata, id(buffer)))
        if "numpy" in sys.modules:
            array = sys.modules["numpy"].zeros(4)
            tensor = torch.from_numpy(array)
            known = known and library.sentinel_torch_learn_object(tensor._cdata, id(array))
        return bool(known)

    def _tells_apart(self):
        """Whether the census finds a weight alone that is, and none that is not: versions of PyTorch count in other
        ways."""
        torch, kept = self._torch, []

        def weight(buffer=None):
            tensor = torch.frombuffer(bytearray(64) if buffer is None else buffer, dtype=torch.float32)
            parameter = torch.nn.Parameter(tensor.view(4, 4))
            kept.append([parameter, {"in a state dict": tensor}])
            return parameter

        seen = [weight() for _ in range(2)]
        kept.append(torch.utils.dlpack.to_dlpack(seen[0].detach()))
        storage = getattr(seen[1], "untyped_storage", lambda: seen[1].storage().untyped())()
        kept.append(storage[4:8])
        del storage
        buffer = bytearray(64)
        seen.append(weight(buffer))
        if "numpy" in sys.modules:
            seen.append(weight())
            kept.append(seen[-1].detach().numpy())
        alone = weight()
        census = Census(torch, self._library, {})
        found = [census.is_alone(census.facts[one._cdata], {one._cdata}) for one in (alone, *seen)]
        return found == [True] + [False] * len(seen)


class Census:
    """All tensors that Python knows, what holds each, and what lies where. It is right until the next of them is made
    or forgotten."""

    def __init__(self, torch, library, weights):
        self._torch = torch
        self._tensors = {one._cdata: one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)}
        self._tensors.update(weights)  # gc.freeze() hides what there is
        self.facts = {}
        waiting = list(self._tensors)
        while waiting:
            address = waiting.pop()
            if address not in self.facts:
                facts = self.facts[address] = _Facts()
                library.sentinel_torch_tensor_facts(address, ctypes.byref(facts))
                waiting += filter(None, facts.bases)
        self._views = collections.Counter(base for one in self.facts.values() for base in one.bases if base)
        self._on, self._of = collections.defaultdict(set), collections.defaultdict(dict)
        for address, facts in self.facts.items():
            if facts.foreign:
                self._on[facts.storage].add(address)
                self._of[facts.owner][facts.storage] = (facts.address, facts.address + facts.bytes)
        self._holders = None

    def is_alone(self, facts, weights):
        """Whether the storage's memory is reached through nothing but tensors, which follow when it moves."""
        on = self._on[facts.storage]
        if len(on) != facts.storage_uses or not all(self._is_a_tensor_only(one, weights) for one in on):
            return False
        return self._owner_is_silent(facts) and facts.storage not in _overlapping(self._of[facts.owner])

    def maps_file(self, facts):
        return bool(facts.owner_maps_file) if facts.memory == _SLICE else _last_owner(facts.owner) is mmap.mmap

    def _is_a_tensor_only(self, address, weights):
        facts, wrapped = self.facts[address], address in self._tensors
        others = facts.uses - (wrapped and facts.owns_wrapper != 1) - self._views[address]
        if address in weights:  # an array of numpy never holds these, but a tensor of its own
            return others == 0 or (self._reduces() and self._tensors[address].requires_grad)
        return others == 0 and (not wrapped or self._unknown_holders(address) == 0)

    def _reduces(self):
        """DistributedDataParallel holds the weights that it reduces the gradients of."""
        distributed = self._torch.distributed
        return distributed.is_available() and distributed.is_initialized()

    def _unknown_holders(self, address):
        """References to a tensor that the garbage collector does not know: of arrays, and of functions' variables."""
        if self._holders is None:
            self._holders = self._count_holders()
        facts, known = self.facts[address], self._holders[id(self._tensors[address])]
        by_itself = facts.owns_wrapper == 1 or (facts.owns_wrapper == -1 and facts.uses > 1)
        example = {0: object()}
        return (sys.getrefcount(self._tensors[address]) - known - by_itself) - (sys.getrefcount(example[0]) - 1)

    def _count_holders(self):
        wanted = {id(one) for address, one in self._tensors.items() if self.facts[address].foreign}
        counts = collections.Counter()
        for holder in gc.get_objects():
            counts.update(id(one) for one in gc.get_referents(holder) if id(one) in wanted)
        return counts

    def _owner_is_silent(self, facts):
        storages = len(self._of[facts.owner])
        if facts.memory == _SLICE:
            return facts.owner_maps_file and facts.owner_uses == storages
        return _last_owner(facts.owner, storages) is not None


def _overlapping(ranges):
    """Name -> (begin, end); the names of those that overlap."""
    found, last, top = set(), None, 0
    for name, (begin, end) in sorted(ranges.items(), key=lambda one: one[1]):
        if begin < top:
            found |= {name, last}
        if end > top:
            last, top = name, end
    return found


def _last_owner(address, holders=None):
    """The type of the object that gave the memory: an array's own, or what the array is a view of. None: not known, or
    held by others than `holders` (any number, if None) storages and each array by its view."""
    numpy = sys.modules.get("numpy")
    arrays = (numpy.ndarray, numpy.memmap) if numpy else ()
    example, box, maps = [object()], [ctypes.cast(address, ctypes.py_object).value], 0
    while True:
        kind = type(box[0])
        if holders is not None:
            expected = holders + (maps if kind is mmap.mmap else 0)  # which an array keeps in its dict, too
            held = sys.getrefcount(box[0]) - sys.getrefcount(example[0])
            if held != expected or weakref.getweakrefcount(box[0]):
                return None
            holders = 1
        if kind in (bytes, bytearray, mmap.mmap):
            return kind
        if kind not in arrays:
            return None
        if box[0].base is None:
            return kind if box[0].flags.owndata else None
        maps += kind is not numpy.ndarray
        box[0] = box[0].base


class PrivateMemory:
    """Which memory this process alone sees, and may write."""

    def __init__(self):
        self._begins, self._rest = [], []
        with open("/proc/self/maps") as maps:
            for line in maps:
                addresses, rights = line.split(maxsplit=2)[:2]
                begin, end = (int(word, 16) for word in addresses.split("-"))
                self._begins.append(begin)
                self._rest.append((end, rights))

    def why_not(self, facts):
        at = facts.address
        while at < facts.address + facts.bytes:
            place = bisect.bisect_right(self._begins, at) - 1
            end, rights = self._rest[place] if place >= 0 else (0, "")
            if end <= at:
                return _UNKNOWN_OWNER
            if rights[3] != "p":
                return _SHARED
            if rights[:2] != "rw":
                return _READ_ONLY
            at = end
        return None
