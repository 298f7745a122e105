"""Words of torch's own code: a user, a host or a secret with such a name cannot be told from code.

Each word is in at least 20 files of the packages _inductor, _dynamo, _functorch, fx and others of
torch 2.13. ``tests/core/test_evidence.py`` has the list of packages, and fails if the words do not
match the sources.
"""

from __future__ import annotations

import builtins
import keyword
import re

WORDS = frozenset(
    """
abc able about above abs absent absolute abstract abstractmethod acc accelerator accept accepted accepts access
accessed accesses accessing according accordingly account accum accumulate accumulated accumulation accumulator
accuracy accurate achieve across act action activation activations active actual actually adam adaptive add addcmul
added adding addition additional additionally addmm addr address adds adjust affect affects affiliates affine after
again against agent aggregate agnostic ahead aka algorithm algorithms alias aliased aliases aliasing align aligned
alignment alive all allgather alloc allocate allocated allocation allocations allocator allow allowed allowing allows
allreduce along alpha already also alternative although always amax ambiguous amd among amount amp analysis analyze
and annotate annotated annotation annotations another any anymore anything anyway aot aota aotc aotd aoti api appear
appears append applicable application applied applies apply applying approach appropriate appropriately arange
arbitrary arch architecture are aren arg argdefs argmax args argument arguments arithmetic around array artifact
artifacts arxiv ase assert assertion assertions asserts assign assigned assignment associated assume assumed assumes
assuming assumption assumptions async aten atexit atom atomic attach attempt attempted attempting attempts attention
attn attr attribute attributes attrs auto autocast autograd automatic automatically autotune autotuner autotuning
available average avg avoid avoiding avoids aware away axis back backed backend backends background backward backwards
bad bag bandwidth bar barrier base based basename bases basic basically batch batched batches because become becomes
been before begin beginning behavior behaviors being belong below bench benchmark benchmarking benchmarks benefit best
beta better between beyond bfloat bfs bias biases big bin binary bind binding bindings bit bits bitwise blob block
blocking blocks bmm body bool boolean both bottom bound boundaries boundary bounds box boxed branch break breaking
breaks broadcast broadcasted broadcasting broken bsd bucket budget buf buffer buffers bug bugs build builder building
builds built builtin builtins bundled but bwd bypass byte bytecode bytes cache cached caches caching calculate
calculated calculation call callable callables callback callbacks called caller callers calling calls can candidate
candidates cannot canonical canonicalize cap capability capture captured captures capturing care careful carefully
carry case cases cast casting casts cat catch category causal cause caused causes causing ceil cell certain cfg chain
change changed changes changing channel channels char cheap check checked checker checking checkpoint checkpointing
checkpoints checks child children choice choices choose chosen chunk chunked chunking chunks circular clamp class
classes clean cleanup clear cleared clears clone cloned close closed closure cls cluster cmd cmp cnt coalesced code
codecache codegen codes col collect collected collection collections collective collectives collects column columns
com combination combinations combine combined combines come comes coming comm command comment commit common comms
communication compare compared comparing comparison comparisons compat compatibility compatible compilation compile
compiled compiler compiles compiling complete completed completely completes complex complexity complicated component
components composable composite computation computations compute computed computes computing concat concatenate
concatenated concrete concurrent cond condition conditional conditions config configs configuration configurations
configure configured conflict conjunction consecutive conservative consider considered consistency consistent consists
const constant constants constexpr constrain constraint constraints construct constructed construction constructor
constructs consume consumed consumer consumes contain contained container containers containing contains content
contents context contextlib contextmanager contexts contiguous continue contract control controls conv convenience
convenient convention conversion convert converted converting converts convolution coordinate copied copies copy
copying copyright core correct correction correctly correctness correspond corresponding corresponds cos cost costs
could count counter counters counts cover covers cpp cpu cpython crash create created creates creating creation
critical cross cse csrc ctx cuda cudac cudagraph cudagraphs cudnn cumulative cur curr current currently custom
customized cut cute cutedsl cutlass cycle cycles data dataclass dataclasses datapipe datapipes datetime dce ddp dead
deal debug debugging decay decide decision decisions decode decomp decompose decomposed decomposition decompositions
decorated decorator decorators dedent dedup deduplicate deep deepcopy def default defaultdict defaults defer deferred
define defined defines defining definition definitions defs del delattr delay delegate delegates delete deleted delta
denominator dense dep depend dependencies dependency dependent depending depends deprecated deprecation deps depth
deque derive derived desc descending describe described describes describing description descriptor descriptors
deserialize design designed desired dest destination detach detail detailed details detect detected detecting
detection determine determined determines deterministic dev device devices dict dictionaries dictionary dicts did didn
diff differ difference differences different differentiable differently differs difficult dilation dim dimension
dimensional dimensions dims dir direct direction directly directory dirname disable disabled disables disabling
disallow discard disk dispatch dispatcher dispatches display dist distance distinct distinguish distribute distributed
distribution div divide divisible division divisor doc docs docstring document documentation does doesn doing don done
dont dot double down downstream driver drop dropout dsl dst dtensor dtype dtypes due dummy dump dumps dup duplicate
duplicated duplicates duration during dyn dynamic dynamically dynamo each eager eagerly earlier early easier easily
easy edge edges effect effectful effective effectively effects efficiency efficient effort either elastic elem element
elements elementwise elif eliminate elimination else embed embedding emit emits emitted emplate empty emulate enable
enabled enables enabling encode encoding encounter encountered end endif ends endswith enforce engine enough ensure
ensures ensuring enter entering entire entirely entries entry entrypoint enum enumerate env environ environment
epilogue eps epsilon equal equality equals equivalent erase erased erf ernel err error errors escape especially
essentially estimate estimated estimation estimator etc eval evaluate evaluated evaluates evaluation even event events
eventually ever every everything exact exactly example examples exc exceeds except exception exceptions exclude
excluded excluding exclusive exec execute executed executes executing execution executor exist existing exists exit
exiting exits exp expand expanded expect expected expecting expects expensive experimental explanation explicit
explicitly exponential export exported exporting expose exposed exposes expr expression expressions exprs ext extend
extended extends extension extensions extern external extra extract extracted extracts facebook facing fact factor
factors factory fail failed failing fails failure failures fake fall fallback falling falls false far fast faster
fbcode feature features fetch few fewer field fields figure file filename files fill filled filter filtered filtering
filters final finalize finally find finding finds fine finish finished first fix fixed fixme flag flags flake flash
flat flatten flattened flattening flex flexible flight flip float floating floats floor floordiv flow flush fma fmt
fns fold folder folding follow followed following follows foo for force forced foreach fork form format formats
formatted formatter forms formula forward forwards found fqn frac frame frames framework free freed freevars freeze
freezing fresh from fromkeys front frozen frozenset fsdp full fullgraph fully fun func function functional
functionality functionalize functionalized functions functools functorch further fuse fused fusion fusions fut future
futures fwd gamma garbage gather gathered gathers gelu gemm gen general generally generate generated generates
generating generation generator generic get getattr getattribute getenv getitem gets getstate getting getvalue github
give given gives giving global globally globals goes going good got gpu grab grad gradient gradients grads graph
graphs greater grid group grouped grouping groups guarantee guaranteed guarantees guard guarded guarding guards hack
had half hand handle handled handler handlers handles handling happen happened happens hard hardware has hasattr hash
hashable hashing hashlib hasn have haven having head header headers heads help helper helpers helpful helps hence here
heuristic heuristics hexdigest hidden hierarchy high higher highest hint hints hip hit hits hold holder holding holds
hook hooks hop horizontal host hot how however html https idea ideally identical identifier identifies identify
identity ids idx idxs ignore ignored ignores ignoring image immediately immutable impl implement implementation
implemented implementing implements implicit implicitly implies impls import important imported importlib imports
improve inc include included includes including inclusive incompatible inconsistent incorrect incorrectly increase
increasing increment indent indented independent independently index indexed indexes indexing indicate indicates
indicating indices indirect individual inductor inf infer inference inferred infinite info information infos infra ing
inherit init initial initialization initialize initialized initializes initializing inline inlined inlining inner
innermost inp inplace inps input inputs insert inserted inserting insertion inserts inside inspect inst install
installed instance instances instantiate instead instruction instructions int integer integers integral intended
intentionally inter interface interfaces intermediate intermediates internal internally internals interpreter
intersection interval into intrinsic introduce introduced ints inv invalid invalidate invariant invariants inverse
invocation invocations invoke invoked invoking involved irn isinf isinstance isn isnan issubclass issubset issue
issued issues item itemgetter items itemsize iter iterable iterate iterating iteration iterations iterator itertools
its itself jit job join joint json just justknobs keep keepdim keeping keeps kept kernel kernels key keyed keys
keyword kind know known knows kwarg kwargs label lambda lang language large larger largest last latency later latest
latter launch launcher layer layers layout layouts lazily lazy lead leading leads leaf learning least leave leaves
left legacy len length lengths leq less let lets level lhs lib library license licensed lifetime lift lifted like
likely limit limitations limited limits linalg line linear lineno lines link lint linux list lists literal little live
load loaded loader loading loads local locally locals location lock log logged logger logging logic logical logs
logsumexp long longer look looking looks lookup loop loops lose loss lost lot low lower lowered lowering lowerings lru
lstm machine made magic main mainly maintain maintaining maintains major make makedirs makes making managed management
manager managers manages managing manual manually many map mapped mapping mappings maps mark marked marking mask
masked masking masks master mat match matched matcher matches matching materialize materialized math matmul matrices
matrix matter matters max maximize maximum maxsize may maybe mean meaning meaningful means meant mechanism mem member
members membership memo memory merge merged merges merging mesh message messages meta metaclass metadata metas meth
method methods metric metrics micro mid middle might migration min minimal minimum mirror mirrors misc mismatch miss
missing mix mixed mixin mkldnn mock mod mode model models modes modification modified modifies modify modifying
modular module modules moment more most mostly move moved moves moving mps mro msg mtia much mul multi multiple
multiplication multiply must mutable mutate mutated mutates mutating mutation mutations mypy name named namedtuple
names namespace naming nan narrow native nbytes nccl ndim nearest necessarily necessary need needed needs neg negative
neither nested nesting net network never new newer newly next nnm node nodes non none nonlocal nonzero nop noqa nor
norm normal normalization normalize normalized normally not note notes nothing notice now null nullcontext num number
numbers numel numeric numerical numpy nvidia nyi obj object objects observed occur occurred occurs ode odule off
offload offset offsets often old older once one ones onfig ongoing only onto opaque open operand operands operate
operates operation operations operator operators ops opt optim optimal optimization optimizations optimize optimized
optimizer optimizers option optional optionally options order ordered ordering org orig origin original originally ose
oss other others otherwise our out outer output outputs outs outside over overall overflow overhead overlap
overlapping overload overloadpacket overloads overridden override overrides overriding overwrite own owner owning pack
package packed packet pad padded padding pair pairs pairwise paper parallel parallelism param parameter parameters
params parent parents parse parser part partial partially participate participating particular particularly partition
partitioned partitioner partitioning partitions parts pass passed passes passing past patch patched patches path
pathlib paths pattern patterns payload peak peer pending per perf perform performance performed performing performs
permute persistent phase philox physical pick pickle pickled pickler pickling pid pin pinned pipe pipeline place
placed placeholder placeholders placement placements plain plan planner planning platform platforms please plus point
pointer pointers pointing points pointwise policy polyfills pool pop popleft populate populated populates port pos
position positional positions positive possible possibly post potential potentially pow power practice pre precedence
precision precompile precomputed precondition pred prefer preferred prefetch prefix prefixes prepare prepend present
preserve preserved preserves preserving pretty prev prevent preventing prevents previous previously primals primary
primitive prims print printer printing prints prior priority private probably problem problems process processed
processes processing processor prod produce produced producer produces producing product profile profiler profiling
program progress prologue promote promotion prop propagate propagated propagation proper properly properties property
props protocol prototype provenance provide provided provides providing proxies proxy prune ptr public pull pure
purpose purposes push put pyre pyrefly python pytorch pytree qualified qualname quant quantization quantized query
queue quite raise raised raises raising rand randint randn random randomness range ranges rank ranks raph rare rate
rather ratio raw reach reached read readable reader reading reads ready real realize realized really reason reasons
receive received receives recommend recommended recompilation recompile recomputation recompute reconstruct
reconstructed reconstruction record recorded recorder recording records recover recurse recursion recursive
recursively recv red redef redirect redispatch redistribute redistribution reduce reduced reduces reducing reduction
reductions redundant ref refactor refer reference referenced references refers reflect refs regarding regardless regex
region regions register registered registering registers registration registry regular reinterpret reject related
relative release relevant relies relu rely remain remainder remaining remains remap remote removable remove removed
removes removing rename render rendezvous reorder reordered reordering repeat repeated replace replaced replacement
replacements replaces replacing replay replicate replicated replication report repr represent representation
represented representing represents repro req request requested requests require required requirement requirements
requires requiring res reserved reset reshape reshard resize resolution resolve resolved resources respect respective
respectively responsibility responsible rest restart restore restored result resulting results resume ret retain
retrieve retrieved return returned returning returns reuse reused reusing reverse reversed revisit rewrite rewritten
rhs richcompare rid right rights rng rnn roc rocm root round rounding row rows rpc rror rsplit rule rules run running
runs runtime safe safely safety same sample samples sanity satisfy save saved saves saving say scalar scalars scale
scaled scales scaling scan scatter scatters scenarios schedule scheduled scheduler scheduling schema schemas scheme
scope scoped score scratch script scripting sdpa search second seconds section see seed seems seen sees select
selected selection self semantic semantics send sending sense sent sentinel separate separated separately seq sequence
sequences sequential serializable serialization serialize serialized server set setattr setdefault setitem sets
setstate setter setting settings setup several sfdp sgd sha shallow shape shapes shard sharded sharding shards share
shared sharing shift short should shouldn show shown shows shuffle shutdown shutil side sig sigmoid sign signal
signals signature signatures significant significantly silent silently similar similarly simple simpler simplified
simplify simply sin since single singleton site size sized sizes sizevars skip skipped skipping skips sleep slice
sliced slices slicing slightly slot slots slow slower small smaller smallest snapshot softmax solution solve some
something sometimes soon sort sorted sorting sound source sourceless sources space sparse spec special specialization
specialize specialized specially specific specifically specification specified specifies specify specifying specs
speed speedup splice split splits splitting spmd sqrt square squeeze src stability stable stack stacklevel stage
stages stale standalone standard start started starting starts startswith state statement states static statically
statistics stats status stay stays std stderr stdout step steps still stop storage storages store stored stores
storing str strategies strategy stream streams strict strictly stride strided strides string strings strip struct
structure structured structures stuff style sub subclass subclasses subgraph subgraphs subject submit submod submodule
submodules subprocess subs subsequent subset substitute subtract success successful successfully such sufficient
suffix suggest suitable sum summary super support supportable supported supporting supports suppose suppress sure swap
switch sym symbol symbolic symbols symint symints symmetric symnode sympy sync synchronize syntax sys system table tag
tags tail take taken takes taking tangent tangents tanh target targets tate technically tell tells temp tempfile
template templates temporarily temporary ten tensor tensors term terms test tested testing tests text textwrap than
that the their them themselves then theory there therefore these they thing things think third this those though
thread threading threads three threshold through throw thus tile tiles tiling time timed timedelta timeout times
timing tls tma tmp today todo together token tokens tolist too tools top topological torch torchbind torchdynamo
torchelastic torchgen torchinductor torchscript total trace traceable traceback traced tracer traces tracing track
tracked tracker tracking tracks trailing train trainer training transfer transform transformation transformed
transformer transforms translator transpose transposed traversal traverse treat treated tree trees tried tries trigger
triggered triggering triton trivial true truediv trunc truth try trying tuning tuple tuples turn turned turns twice
two typ type typed typename types typically typing uid uint unable unary unavailable unbacked unbind unbound unchanged
undefined under underlying understand uneven unexpected unflatten unfortunately uniform unify unimplemented
uninitialized union unique uniquely unit unittest universal unknown unless unlike unnecessary unpack unpacked
unrecognized unroll unsafe unset unsharded unspec unspecialized unsqueeze unsupported until untyped unused unwrap
unwrapped upcast update updated updates updating upon upper upstream usage usages use used useful user users uses
using usr usually utf util utilities utility utils utograd uuid val valid validate validation vals value values var
varargs variable variables variance variant variants various vars vec vector verbose verify version versions very via
view views virtualized visible visit visited vmap void wait waiting waits walk walks want wants warm warmup warn
warning warnings warp warps was way ways weak weakref weight weights well were what when whenever where whereas
whether which while whole whose why width will win window windows wire wise with within without won words work
workaround worker workers working works workspace world worth would wrap wrapped wrapper wrappers wrapping wraps write
writeline writer writes writing written wrong xdoctest xla xor xpu yet yield yields you your zero zeros zip
    """.split()
)

_PYTHON = frozenset(name.lower() for name in (*dir(builtins), *keyword.kwlist))
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_code(name: str) -> bool:
    """Return whether a name consists of words of code: ``head``, ``linear_weight``,
    ``NotImplementedError``.
    """
    if not name.isidentifier() or any(c.isdigit() for c in name):
        return False
    parts = [part.lower() for part in _PARTS.findall(name)]
    return name.lower() in _PYTHON or (
        parts != [] and all(p in WORDS or len(p) <= 2 for p in parts) and len(name) > 2
    )
