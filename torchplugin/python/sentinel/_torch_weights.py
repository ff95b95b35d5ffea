"""Weights that are not ours: parameters and buffers in memory that PyTorch's allocator did not give, as `safetensors`,
`torch.load(mmap=True)` and `from_numpy` make them. Before the first step they are brought into the arena, once and to
the same bits, if nothing else can reach their memory. docs/design/foreign-weights.md says how that is known."""
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
        self._by_optimizer = False
        self._left = {}  # storage -> (reason, bytes), not told yet
        self._told = set()

    def of_module(self, module):
        self._found(lambda: [*module.parameters(), *module.buffers()])
        if not self._by_optimizer:
            self.tell()

    def of_optimizer(self, optimizer):
        self._by_optimizer = True
        self._found(lambda: [one for group in optimizer.param_groups for one in group["params"]])

    def tell(self):
        """Each reason once. A module may bring what an optimizer that was made before it has left."""
        sizes = collections.defaultdict(list)
        for reason, size in self._left.values():
            sizes[reason].append(size)
        self._left = {}
        for reason in sizes.keys() - self._told:
            many, size = len(sizes[reason]), sum(sizes[reason]) / 1024
            size = f"{size / 1024:.1f} MiB" if size >= 1024 else f"{size:.1f} KiB"
            _attach.tell(f"weights of {size} ({many} {'storage' if many == 1 else 'storages'}) stay outside of "
                         f"the budget, in memory that is not Sentinel's: {reason}")
        self._told |= sizes.keys()

    def _found(self, tensors):
        is_foreign = self._library.sentinel_torch_is_foreign
        try:
            with self._torch._C.DisableTorchFunction():  # a subclass's function is not to hear of this
                weights = {one._cdata: one for one in tensors() if is_foreign(one._cdata)}
                if weights and self._library.sentinel_torch_step_ended():
                    self._left[None] = (_LATE, sum(one.numel() * one.element_size() for one in weights.values()))
                    self.tell()
                elif weights:
                    self._bring(weights)
        except Exception as error:  # a module or a tensor of an unknown kind: the program goes on as it would
            self._left[None] = (f"{type(error).__name__}: {error}", 0)

    def _bring(self, weights):
        """By their addresses."""
        counts = self._can_count()
        for facts, reason, mapped in self._looked_at(weights, counts):
            failed = not reason and self._library.sentinel_torch_bring(facts.storage, facts.storage_uses, mapped)
            if failed:
                reason = _NO_ROOM if failed == -errno.ENOMEM else _REACHABLE
            if reason:
                self._left[facts.storage] = (reason, facts.bytes)
            else:
                self._left.pop(facts.storage, None)

    def _looked_at(self, weights, counts):
        """Of each storage: facts, why it is left alone, whether a file is mapped there. Nothing of the census is kept:
        it holds the objects whose memory is to go."""
        census, memory = Census(self._torch, self._library, weights), PrivateMemory()
        storages = {one.storage: one for one in map(census.facts.get, weights) if one.foreign}.values()
        return [(one, memory.why_not(one) or self._why_not(one, census, counts, weights), census.maps_file(one))
                for one in storages]

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
        self._objects = Objects({one.owner for one in self.facts.values() if one.memory == _OBJECT})
        self._holders = None

    def is_alone(self, facts, weights):
        """Whether the storage's memory is reached through nothing but tensors, which follow when it moves."""
        on = self._on[facts.storage]
        if len(on) != facts.storage_uses or not all(self._is_a_tensor_only(one, weights) for one in on):
            return False
        return self._owner_is_silent(facts) and facts.storage not in self._overlapping(facts)

    def maps_file(self, facts):
        if facts.memory == _SLICE:
            return bool(facts.owner_maps_file)
        return facts.memory == _OBJECT and self._objects.kind_of_root(facts.owner) is mmap.mmap

    def _overlapping(self, facts):
        if facts.memory == _SLICE:
            return _overlapping(self._of[facts.owner])
        return _overlapping({name: at for owner in self._objects.of_same_root(facts.owner)
                             for name, at in self._of[owner].items()})

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
        if facts.memory == _SLICE:
            return facts.owner_maps_file and facts.owner_uses == len(self._of[facts.owner])
        return self._objects.are_held_by(facts.owner, self._of)


def _overlapping(ranges):
    """Name -> (begin, end); the names of those that overlap."""
    found, last, top = set(), None, 0
    for name, (begin, end) in sorted(ranges.items(), key=lambda one: one[1]):
        if begin < top:
            found |= {name, last}
        if end > top:
            last, top = name, end
    return found


class Objects:
    """Python objects that storages lie in, and the objects that these are views of: an array, what it is a view of, and
    so on down to the root, which gave the memory."""

    def __init__(self, addresses):
        numpy = sys.modules.get("numpy")
        self._arrays = (numpy.ndarray, numpy.memmap) if numpy else ()
        self._boxes = {}  # by address: the only reference to it from here
        self._below = {}  # array -> what it is a view of
        self._views = collections.Counter()  # references from arrays above
        for address in addresses:
            self._boxes[address] = [ctypes.cast(address, ctypes.py_object).value]
        waiting = list(addresses)
        while waiting:
            self._look_below(waiting.pop(), waiting)

    def _look_below(self, address, waiting):
        box = self._boxes[address]
        if type(box[0]) not in self._arrays or box[0].base is None:
            return
        below = self._below[address] = id(box[0].base)
        self._views[below] += 1
        mapping = getattr(box[0], "_mmap", None)  # which numpy.memmap keeps in its dict
        self._views[id(mapping)] += mapping is not None
        if below not in self._boxes:
            self._boxes[below] = [box[0].base]
            waiting.append(below)

    def _chain(self, address):
        yield address
        while address in self._below:
            address = self._below[address]
            yield address

    def _root(self, address):
        return collections.deque(self._chain(address), 1)[0]

    def kind_of_root(self, address):
        return type(self._boxes[self._root(address)][0])

    def of_same_root(self, address):
        root = self._root(address)
        return [one for one in self._boxes if self._root(one) == root]

    def are_held_by(self, address, storages):
        """The object and those below it: by arrays above and by storages, and nothing else."""
        root, kind = self._root(address), self.kind_of_root(address)
        owns = kind in (bytes, bytearray, mmap.mmap) or (kind in self._arrays and self._boxes[root][0].flags.owndata)
        return owns and all(self._holders(one) == self._views[one] + len(storages.get(one, ()))
                            for one in self._chain(address))

    def _holders(self, address):
        """Of any kind; a weak reference may become one."""
        example, box = [object()], self._boxes[address]
        return sys.getrefcount(box[0]) - sys.getrefcount(example[0]) + weakref.getweakrefcount(box[0])


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
