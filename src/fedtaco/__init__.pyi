"""The public names and the modules that define them; ``__init__.py`` imports a name when it is first used."""

from fedtaco.codecs import (
    CODECS as CODECS,
    Q4 as Q4,
    Q8 as Q8,
    Codec as Codec,
    NoCodec as NoCodec,
    RandK as RandK,
    Sign as Sign,
    TopK as TopK,
)
from fedtaco.data import (
    split as split,
)
from fedtaco.errors import (
    InvalidInput as InvalidInput,
    RunStopped as RunStopped,
    StopTraining as StopTraining,
)
from fedtaco.experiment.config_file import (
    read_config as read_config,
)
from fedtaco.experiment.results import (
    Comparison as Comparison,
    Sweep as Sweep,
    load_runs as load_runs,
)
from fedtaco.experiment.runner import (
    load as load,
)
from fedtaco.experiment.several import (
    compare as compare,
    sweep as sweep,
)
from fedtaco.experiment.training import (
    run as run,
    train as train,
)
from fedtaco.methods import (
    METHODS as METHODS,
    Broadcast as Broadcast,
    Constants as Constants,
    Cost as Cost,
    Expulsion as Expulsion,
    FedACG as FedACG,
    FedAdam as FedAdam,
    FedAvg as FedAvg,
    FedAvgM as FedAvgM,
    FedCM as FedCM,
    FedComGate as FedComGate,
    FedDC as FedDC,
    FedDyn as FedDyn,
    FedExP as FedExP,
    FedMoS as FedMoS,
    FedNova as FedNova,
    FedProx as FedProx,
    FedProxTaco as FedProxTaco,
    FedYogi as FedYogi,
    FoolsGold as FoolsGold,
    FoolsGoldOriginal as FoolsGoldOriginal,
    LocalContext as LocalContext,
    Method as Method,
    Mime as Mime,
    MimeLite as MimeLite,
    NamedTensors as NamedTensors,
    Ruan as Ruan,
    Scaffold as Scaffold,
    ScaffoldM as ScaffoldM,
    ScaffoldTaco as ScaffoldTaco,
    ServerState as ServerState,
    Stem as Stem,
    StemOriginal as StemOriginal,
    Taco as Taco,
    TacoAggregation as TacoAggregation,
    TacoCorrection as TacoCorrection,
    TacoSteady as TacoSteady,
    TacoSteadyUniform as TacoSteadyUniform,
    TacoUniform as TacoUniform,
    Uploads as Uploads,
)
from fedtaco.parameters import (
    parameter as parameter,
)
from fedtaco.records import (
    ClientRecord as ClientRecord,
    Decision as Decision,
    History as History,
    RoundRecord as RoundRecord,
)
from fedtaco.runs.callbacks import (
    Callback as Callback,
    Run as Run,
)
from fedtaco.runs.monitors import (
    BestModel as BestModel,
    EarlyStopping as EarlyStopping,
)
from fedtaco.runs.progress import (
    ProgressBar as ProgressBar,
)
from fedtaco.runs.result import (
    Result as Result,
    load_model as load_model,
    save_model as save_model,
)
from fedtaco.settings.declarations import (
    ExperimentConfig as ExperimentConfig,
)
from fedtaco.trust import (
    DETECTORS as DETECTORS,
    Behaviour as Behaviour,
    ClientView as ClientView,
    Detector as Detector,
    DetectorInput as DetectorInput,
    Freeloader as Freeloader,
    Guard as Guard,
    NormDetector as NormDetector,
    Off as Off,
    PaperDetector as PaperDetector,
    Verdict as Verdict,
)
from fedtaco.version import __version__ as __version__
