//! What the page and the server say to each other about models: which there are, what one would take, and how one is installed. The page's twin of
//! this file is `app/src/setup.ts`.

use serde::{Deserialize, Serialize};

use super::page::PlanLine;

/// How a model shall be opened; what is left out is as the program was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wish {
    /// The model, by its name in the list.
    pub model: Option<String>,
    /// The most memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Tokens of context.
    pub context: Option<u32>,
    /// Retained expert slots of each layer.
    pub slots: Option<u32>,
    /// How weights are read.
    pub io: Option<Io>,
}

/// How weights are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// Past the page cache where the file system allows it.
    Auto,
    /// Past the page cache, or not at all.
    Direct,
    /// Through it.
    Buffered,
}

/// `POST /app/plan`: what a wish would take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Planned {
    /// The model.
    pub model: String,
    /// All that it would take of memory.
    pub total_bytes: u64,
    /// The least with which the same context would run.
    pub smallest_bytes: u64,
    /// Tokens of context.
    pub context: usize,
    /// The most that the model was made for.
    pub max_context: usize,
    /// Retained expert slots of all layers at a full context.
    pub slots: usize,
    /// Layers with routed experts.
    pub layers: usize,
    /// Routed experts of each layer.
    pub experts: usize,
    /// What the memory would be for.
    pub plan: Vec<PlanLine>,
    /// How weights would really be read: `direct`, `dropping`, `buffered`.
    pub reads: &'static str,
    /// What is free, with what the model that is loaded now would give back; where the system says.
    pub free_bytes: Option<u64>,
    /// Whether it is enough.
    pub fits: Option<bool>,
    /// How fast it would be, where the machine was measured.
    pub expected: Option<Expected>,
}

/// How fast a model would be, as far as a measured machine foretells it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// Tokens a second of an answer, with the context nearly full.
    pub decode_tokens_per_s: f64,
    /// Tokens a second of a prompt of 512, with no expert in memory yet.
    pub prefill_tokens_per_s: f64,
}

/// A model in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// What it is called.
    pub name: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// What it is good for.
    pub state: ModelState,
    /// Why it cannot be used, in English.
    pub why: Option<String>,
    /// Whether commands use it when none is named.
    pub is_default: bool,
    /// Whether it is the one in the program.
    pub is_demo: bool,
}

/// What a model is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelState {
    /// It can be used.
    Complete,
    /// Its installation was cut short.
    Unfinished,
    /// Another process installs it.
    Installing,
    /// It was the default and is not there any more.
    Gone,
    /// It cannot be used.
    Broken,
}

/// `GET /app/models`
#[derive(Debug, Serialize)]
pub struct Shelf {
    /// All of them.
    pub models: Vec<Listed>,
    /// The one that is chosen, by its name.
    pub chosen: Option<String>,
    /// How it was opened, as far as somebody said.
    pub wish: Wish,
    /// Why what was wanted at the start could not be had.
    pub problem: Option<String>,
    /// Whether models can be installed from here.
    pub can_install: bool,
}

/// `POST /app/models/default`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// A model of the list.
    pub model: String,
}

/// What an installation is about, as far as nobody has to be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// `owner/name`
    pub repository: String,
    /// A branch, a tag or a commit.
    pub revision: String,
    /// The hub.
    pub host: String,
    /// What the model will be called.
    pub model: String,
    /// Where it will lie.
    pub folder: String,
    /// What is free there, where the system says.
    pub free_bytes: Option<u64>,
    /// Whether it is installed already.
    pub is_installed: bool,
    /// What an installation that was cut short has left, if one was.
    pub partial_bytes: Option<u64>,
}

/// What a hub says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Offer {
    /// The commit that everything is held to.
    pub commit: String,
    /// Whether this program knows the commit.
    pub is_pinned: bool,
    /// The licence, as the repository states it.
    pub licence: Option<String>,
    /// The repository's page.
    pub page: String,
    /// Bytes that come in all.
    pub transfer_bytes: u64,
    /// Of those, the ones that have come before.
    pub come_bytes: u64,
    /// Bytes of an unfinished installation of another checkpoint that are removed first.
    pub removes_bytes: u64,
    /// Bytes of the finished model.
    pub disk_bytes: u64,
    /// Bytes that must be free, with a reserve.
    pub needed_bytes: u64,
}

/// `POST /app/install/start`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
pub enum Work {
    /// Fetches the model, or the rest of it.
    Download,
    /// Hashes every file of a model again.
    Verify {
        /// Its name.
        model: String,
    },
    /// Fetches again what is damaged of it.
    Repair {
        /// Its name.
        model: String,
    },
}

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkPhase {
    /// The hub is asked, and what an earlier run left is compared with its record.
    Checking,
    /// Bytes come.
    Fetching,
    /// Files are hashed.
    Verifying,
}

/// How it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nothing was begun here.
    #[default]
    Idle,
    /// It is under way.
    Running,
    /// It was asked to pause, and what was done is made durable.
    Pausing,
    /// It goes on when somebody says so.
    Paused,
    /// It could not go on.
    Failed,
    /// It found damage.
    Damaged,
    /// It is done.
    Done,
}

/// `GET /app/install`
#[derive(Debug, Serialize)]
pub struct Installing {
    /// What is known without asking.
    pub found: Found,
    /// Whether the hub is being asked.
    pub is_asking: bool,
    /// What it said.
    pub offer: Option<Offer>,
    /// Why it said nothing.
    pub offer_problem: Option<String>,
    /// What is under way, or was last.
    pub work: Option<Work>,
    /// How that stands.
    pub stage: Stage,
    /// The part of it.
    pub phase: Option<WorkPhase>,
    /// Bytes of that part which are done.
    pub done_bytes: u64,
    /// And in all.
    pub total_bytes: u64,
    /// How fast it goes lately.
    pub bytes_per_s: Option<u64>,
    /// When it would be over.
    pub seconds_left: Option<u64>,
    /// Why something is tried again.
    pub retry: Option<String>,
    /// Why it could not go on.
    pub problem: Option<String>,
    /// What is damaged.
    pub damage: Vec<String>,
    /// The model that is there now.
    pub model: Option<String>,
}
