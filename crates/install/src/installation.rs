//! One installation: prepared without writing anything, then run.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use ouzel_format::Sha256Hex;
use ouzel_storage::{Disk, give_way, xxh3_64};

use crate::checkpoint::Checkpoint;
use crate::hash::{Hashed, hash_file};
use crate::landing::Landing;
use crate::plan::{Piece, Plan, PlannedFile, plan};
use crate::ranges::{Run, Transfer};
use crate::records::{RecordInputs, write_records};
use crate::room::Room;
use crate::source::{Request, Sink, Source};
use crate::stage::{self, Stage, StageInputs};
use crate::{Event, InstallError, InstallOptions, Installed, Phase};

/// How often progress is told while the last files are hashed.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// An installation that is planned and checked; nothing is written before [`Installation::run`].
pub struct Installation<'a> {
    source: &'a dyn Source,
    disk: &'a dyn Disk,
    output: PathBuf,
    options: &'a InstallOptions,
    checkpoint: Checkpoint,
    plan: Plan,
    transfer: Transfer,
    fingerprint: Sha256Hex,
    /// Bytes that an earlier run says it transferred.
    pub claimed_bytes: u64,
    /// What an unfinished installation of another checkpoint or revision left there, in bytes; it will be removed.
    pub discarded_bytes: Option<u64>,
    /// Room on the disk.
    pub room: Room,
}

impl<'a> Installation<'a> {
    /// Reads the checkpoint's headers, plans, and looks for what is in the way.
    ///
    /// # Errors
    /// [`InstallError::Exists`], [`InstallError::InTheWay`] (what would be replaced is no model), and those of [`plan`].
    pub fn prepare(
        source: &'a dyn Source,
        disk: &'a dyn Disk,
        output: &Path,
        options: &'a InstallOptions,
    ) -> Result<Installation<'a>, InstallError> {
        let checkpoint = Checkpoint::read(source)?;
        if let Some(pinned) = options.index_sha256
            && checkpoint.index_sha256 != Some(pinned)
        {
            let found = checkpoint.index_sha256;
            let found = found.map_or("none".to_owned(), |hash| hash.to_string());
            return Err(InstallError::Foreign {
                file: crate::checkpoint::INDEX.to_owned(),
                reason: format!("has SHA-256 {found} instead of {pinned}"),
            });
        }
        let plan = plan(&checkpoint)?;
        // What could not be replaced is not said to be replaceable.
        stage::check_replaceable(disk, output)?;
        if disk.exists(output) && !options.overwrite {
            return Err(InstallError::Exists {
                path: output.to_owned(),
            });
        }
        let transfer = Transfer::of(&plan);
        let fingerprint = plan.fingerprint(source);
        let claims = stage::claims(
            disk,
            &StageInputs {
                output,
                fingerprint: &fingerprint,
                files: &plan.files,
                transfer: &transfer,
            },
        )?;
        let claimed = claims.iter().flatten();
        let claimed_bytes = claimed.map(|record| transfer.ranges[record.range].len);
        let partial = stage::partial_of(output);
        let room = Room::of(disk, (output, &partial), &plan)?;
        let is_foreign = claims.is_none() && disk.exists(&partial);
        Ok(Installation {
            claimed_bytes: claimed_bytes.sum(),
            discarded_bytes: is_foreign.then_some(room.taken_bytes),
            room,
            source,
            disk,
            output: output.to_owned(),
            options,
            checkpoint,
            plan,
            transfer,
            fingerprint,
        })
    }

    /// Well-known files that the checkpoint lacks.
    pub fn missing(&self) -> Vec<Event> {
        let missing = self.checkpoint.missing.iter();
        missing
            .map(|&file| Event::Missing {
                file,
                consequence: consequence(file),
            })
            .collect()
    }

    /// Bytes that come from the source in all, headers apart.
    pub fn transfer_bytes(&self) -> u64 {
        self.transfer.bytes()
    }

    /// Bytes of the finished directory's payload.
    pub fn size_bytes(&self) -> u64 {
        self.plan.size()
    }

    /// Whether the disk has room for what is left to do, and the reserve.
    ///
    /// # Errors
    /// [`InstallError::NoRoom`].
    pub fn check_room(&self) -> Result<(), InstallError> {
        self.room.check(&self.output)
    }

    /// Does it.
    ///
    /// # Errors
    /// [`InstallError::NoRoom`] before anything is written; disk and source errors and [`InstallError::Paused`] leave a partial directory
    /// from which the same installation goes on.
    pub fn run(self, events: &mut dyn FnMut(Event)) -> Result<Installed, InstallError> {
        self.check_room()?;
        let inputs = StageInputs {
            output: &self.output,
            fingerprint: &self.fingerprint,
            files: &self.plan.files,
            transfer: &self.transfer,
        };
        if let Some(bytes @ 1..) = self.discarded_bytes {
            events(Event::Discards { bytes });
        }
        if self.claimed_bytes > 0 {
            events(Event::Begins {
                phase: Phase::Checking,
                total_bytes: self.claimed_bytes,
                done_bytes: 0,
            });
        }
        let (stage, landed) = Stage::open(self.disk, &inputs, &mut |bytes| {
            events(Event::Advances { bytes });
            check(&self.options.cancel)
        })?;
        let resumed_bytes = landed.bytes(&self.transfer);
        let runs = self.transfer.runs(&landed.ranges);
        let landing = Landing::open(
            self.disk,
            stage,
            &self.plan,
            (&self.transfer, landed),
            &runs,
        )?;
        let (stage, hashed) = self.fetch(landing, &runs, resumed_bytes, events)?;
        let manifest = write_records(
            &stage,
            &RecordInputs {
                checkpoint: &self.checkpoint,
                plan: &self.plan,
                hashed: &hashed,
                output: &self.output,
                options: self.options,
            },
        )?;
        stage.promote()?;
        Ok(Installed {
            bytes: manifest.files.values().map(|record| record.size).sum(),
            manifest,
            resumed_bytes,
        })
    }

    /// Brings what has not landed, while a second thread hashes the files that are complete.
    fn fetch<'i>(
        &'i self,
        landing: Landing<'i>,
        runs: &[Run],
        resumed_bytes: u64,
        events: &mut dyn FnMut(Event),
    ) -> Result<(Stage<'i>, Vec<Hashed>), InstallError> {
        let hasher = Hasher {
            disk: self.disk,
            n_bytes: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            cancel: &self.options.cancel,
        };
        thread::scope(|scope| {
            let (checks, to_check) = mpsc::channel();
            let (tell, hashed) = mpsc::channel();
            scope.spawn(|| hasher.run(to_check, tell));
            let mut inlet = Inlet {
                installation: self,
                by_file: self.transfer.segments_by_file(self.plan.files.len()),
                landing,
                checks,
                events,
            };
            let result = inlet.bring(runs, resumed_bytes);
            let Inlet {
                landing,
                checks,
                events,
                ..
            } = inlet;
            drop(checks);
            let result = result
                .and_then(|()| landing.finish())
                .and_then(|stage| Ok((stage, self.hashed(&hasher, &hashed, events)?)));
            hasher.is_stopped.store(true, Ordering::Relaxed);
            result
        })
    }

    /// Waits for the hashes of all files.
    fn hashed(
        &self,
        hasher: &Hasher<'_>,
        results: &Receiver<Result<(usize, Hashed), InstallError>>,
        events: &mut dyn FnMut(Event),
    ) -> Result<Vec<Hashed>, InstallError> {
        let mut told = hasher.n_bytes.load(Ordering::Relaxed);
        events(Event::Begins {
            phase: Phase::Verifying,
            total_bytes: self.plan.size(),
            done_bytes: told,
        });
        let mut hashed = vec![None; self.plan.files.len()];
        loop {
            let result = results.recv_timeout(TELL_EVERY);
            let now = hasher.n_bytes.load(Ordering::Relaxed);
            events(Event::Advances { bytes: now - told });
            told = now;
            match result {
                Ok(result) => {
                    let (file, found) = result?;
                    hashed[file] = Some(found);
                }
                Err(RecvTimeoutError::Timeout) => check(&self.options.cancel)?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let hashed = hashed.into_iter();
        Ok(hashed
            .map(|file| file.expect("every file became complete and was hashed"))
            .collect())
    }

    /// The parts of a planned file and their digests: of what landed, and of what planning made.
    fn parts(&self, file: &PlannedFile, segments: &[usize], digests: &[u64]) -> Vec<(u64, u64)> {
        let mut segments = segments.iter();
        let mut parts = Vec::new();
        for piece in file.pieces.iter().filter(|piece| !piece.is_empty()) {
            match piece {
                Piece::Bytes(bytes) => parts.push((piece.len(), xxh3_64(bytes))),
                Piece::Zeros(len) => parts.push((*len, xxh3_64(&vec![0; *len as usize]))),
                Piece::Copy { len, .. } => {
                    let mut done = 0;
                    while done < *len {
                        let &i = segments.next().expect("segments cover every copied piece");
                        parts.push((self.transfer.segments[i].len, digests[i]));
                        done += self.transfer.segments[i].len;
                    }
                }
            }
        }
        parts
    }
}

/// Whether it was cancelled.
pub fn check(cancel: &AtomicBool) -> Result<(), InstallError> {
    match cancel.load(Ordering::Relaxed) {
        true => Err(InstallError::Paused),
        false => Ok(()),
    }
}

/// Takes what the source brings, and hands complete files to the hasher.
struct Inlet<'i, 'e> {
    installation: &'i Installation<'i>,
    /// The segments of each file.
    by_file: Vec<Vec<usize>>,
    landing: Landing<'i>,
    checks: Sender<Check>,
    events: &'e mut dyn FnMut(Event),
}

impl Inlet<'_, '_> {
    fn bring(&mut self, runs: &[Run], resumed_bytes: u64) -> Result<(), InstallError> {
        let Installation {
            source,
            plan,
            transfer,
            ..
        } = self.installation;
        (self.events)(Event::Begins {
            phase: Phase::Fetching,
            total_bytes: transfer.bytes(),
            done_bytes: resumed_bytes,
        });
        self.hand_on();
        let requests: Vec<Request<'_>> = runs
            .iter()
            .map(|run| Request {
                file: &plan.sources[transfer.ranges[run.ranges.start].source],
                offset: run.offset,
                len: run.len,
            })
            .collect();
        let result = source.bring(&requests, self);
        match &result {
            // What the system did not keep is not recorded by a second try.
            Err(InstallError::Storage(_)) | Ok(()) => {}
            Err(_) => self.landing.record()?,
        }
        result
    }

    fn hand_on(&mut self) {
        for file in self.landing.complete() {
            let planned = &self.installation.plan.files[file];
            let digests = &self.landing.landed().digests;
            let check = Check {
                file,
                path: self.landing.path(&planned.path),
                stride: planned
                    .has_experts
                    .then_some(self.installation.plan.expert_stride),
                parts: self
                    .installation
                    .parts(planned, &self.by_file[file], digests),
            };
            // It is gone only if it failed, which is heard of at the end.
            let _ = self.checks.send(check);
        }
    }
}

impl Sink for Inlet<'_, '_> {
    fn take(&mut self, request: usize, bytes: &[u8]) -> Result<(), InstallError> {
        self.check()?;
        self.landing.take(request, bytes)?;
        self.tell(Event::Advances {
            bytes: bytes.len() as u64,
        });
        self.hand_on();
        Ok(())
    }

    fn tell(&mut self, event: Event) {
        (self.events)(event);
    }

    fn check(&self) -> Result<(), InstallError> {
        check(&self.installation.options.cancel)
    }
}

/// A complete file, to be hashed and compared with what landed.
struct Check {
    file: usize,
    path: PathBuf,
    stride: Option<u64>,
    /// Lengths and digests.
    parts: Vec<(u64, u64)>,
}

/// The thread that reads complete files back.
struct Hasher<'a> {
    disk: &'a dyn Disk,
    n_bytes: AtomicU64,
    is_stopped: AtomicBool,
    cancel: &'a AtomicBool,
}

impl Hasher<'_> {
    fn run(&self, checks: Receiver<Check>, tell: Sender<Result<(usize, Hashed), InstallError>>) {
        // What comes in has to be received, decrypted and written; hashing takes what that leaves of the processor.
        give_way();
        for check in checks {
            let hashed = self.hash(&check);
            let has_failed = hashed.is_err();
            if tell.send(hashed).is_err() || has_failed {
                return;
            }
        }
    }

    fn hash(&self, wanted: &Check) -> Result<(usize, Hashed), InstallError> {
        let mut lens = wanted.parts.iter().map(|&(len, _)| len);
        let hashed = hash_file(
            self.disk,
            &wanted.path,
            wanted.stride,
            &mut lens,
            &mut |bytes| {
                self.n_bytes.fetch_add(bytes, Ordering::Relaxed);
                check(self.cancel).and(check(&self.is_stopped))
            },
        )?;
        let mut at = 0;
        for (i, &(len, expected)) in wanted.parts.iter().enumerate() {
            let actual = hashed.parts.get(i).copied();
            if actual != Some(expected) {
                return Err(InstallError::Unkept {
                    path: wanted.path.clone(),
                    offset: at,
                });
            }
            at += len;
        }
        Ok((wanted.file, hashed))
    }
}

fn consequence(file: &str) -> &'static str {
    match file {
        "tokenizer.json" => "chat, generate and eval --text will not work; eval --token-ids will",
        "tokenizer_config.json" => "other programs may miss it; Ouzel does not need it",
        "chat_template.jinja" => "chat and instructions will not work; generate --prompt will",
        "generation_config.json" => "the tokens that end an answer are taken from config.json",
        _ => "the model may not run",
    }
}
