"""Configuration files: TOML into frozen nouns, with units in the keys and unknown keys refused."""

from jaxperf.config._hardware import (
    Hardware as Hardware,
    Link as Link,
    built_in_hardware as built_in_hardware,
    hardware_numbers as hardware_numbers,
    hardware_of_device as hardware_of_device,
    load_hardware as load_hardware,
    node_and_network as node_and_network,
    recorded_hardware as recorded_hardware,
    set_hardware as set_hardware,
)
from jaxperf.config._job import (
    SCHEDULES as SCHEDULES,
    Experts as Experts,
    Job as Job,
    LatentAttention as LatentAttention,
)
from jaxperf.config._job_columns import (
    Column as Column,
    JobColumns as JobColumns,
    by_parts as by_parts,
    columns_of_jobs as columns_of_jobs,
    fields_read as fields_read,
    job_columns as job_columns,
)
from jaxperf.config._job_files import (
    built_in_jobs as built_in_jobs,
    check_keys as check_keys,
    following_fields as following_fields,
    is_job_key as is_job_key,
    job_keys as job_keys,
    load_job as load_job,
    set_job as set_job,
)
from jaxperf.config._job_rules import (
    JOB_PRECISIONS as JOB_PRECISIONS,
    BrokenRule as BrokenRule,
    broken_rules as broken_rules,
    check_job as check_job,
)
from jaxperf.config._memory import (
    Memory as Memory,
    Server as Server,
    Tier as Tier,
    built_in_servers as built_in_servers,
    load_memory as load_memory,
    load_server as load_server,
)
from jaxperf.config._power import (
    Meter as Meter,
    Node as Node,
    PowerDescription as PowerDescription,
    Static as Static,
    Voltage as Voltage,
    built_in_power as built_in_power,
    load_power as load_power,
    power_of_device as power_of_device,
)
from jaxperf.config._scenario import Scenario as Scenario, load_scenarios as load_scenarios
from jaxperf.config._space import (
    CLOCK as CLOCK,
    MEASURES as MEASURES,
    SearchSpace as SearchSpace,
    check_space as check_space,
    field_values as field_values,
    load_space as load_space,
    usual_space as usual_space,
)
from jaxperf.config._tables import (
    EmbeddingTable as EmbeddingTable,
    RecommendationModel as RecommendationModel,
    load_tables as load_tables,
)
from jaxperf.config._toml import (
    compile_pattern as compile_pattern,
    config_folder as config_folder,
    load_toml as load_toml,
    nearest_words as nearest_words,
    one_of as one_of,
    read_named as read_named,
    read_toml as read_toml,
)
