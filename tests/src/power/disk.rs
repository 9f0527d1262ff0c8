//! A disk with what is on it for sure and what is not yet: the state between two events of a trace.
//!
//! A sync of a file makes everything that was done to it before the sync began durable, its length too, but not its name; a sync of a
//! directory its names. Nothing else makes anything durable. That is weaker than any file system in use, on purpose.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::trace::{Change, Event};

/// Number of a file or a directory, never used twice.
pub type Id = usize;

/// A file: what is durable, and what was done since.
#[derive(Clone, Default, Debug)]
pub struct File {
    /// What survives for sure, unless it is overwritten below.
    pub durable: Vec<u8>,
    /// In order: writings, lengths and holes.
    pub pending: Vec<Change>,
    /// How many changes are folded into `durable`.
    folded: usize,
}

/// A change of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Naming {
    /// A name for a new file or directory.
    Made(String, Id),
    /// Another name, which loses what it meant before.
    Renamed(String, String),
    /// No name any more.
    Removed(String),
}

/// A directory: its durable names, those now, and what was done between.
#[derive(Clone, Default, Debug)]
pub struct Directory {
    /// The names that survive for sure, unless they change below.
    pub durable: BTreeMap<String, Id>,
    /// In order.
    pub pending: Vec<Naming>,
    now: BTreeMap<String, Id>,
    folded: usize,
}

/// A file or a directory.
#[derive(Clone, Debug)]
pub enum Node {
    /// A file.
    File(File),
    /// A directory.
    Directory(Directory),
}

/// The disk below the root of a cluster. The root itself is there for sure.
#[derive(Clone, Debug)]
pub struct Disk {
    nodes: Vec<Node>,
    numbers: HashMap<u64, Id>,
    syncs: HashMap<(u32, u64), (Id, usize)>,
}

/// The root.
pub const ROOT: Id = 0;

/// Makes these changes of names.
pub fn rename<'a>(names: &mut BTreeMap<String, Id>, namings: impl IntoIterator<Item = &'a Naming>) {
    for naming in namings {
        match naming {
            Naming::Made(name, id) => {
                names.insert(name.clone(), *id);
            }
            Naming::Renamed(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
            Naming::Removed(name) => {
                names.remove(name);
            }
        }
    }
}

/// Makes one change of a file's content.
pub fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Written { offset, bytes } => {
            let end = offset + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*offset..end].copy_from_slice(bytes);
        }
        Change::Length(length) => content.resize(*length, 0),
        Change::Extended(length) => content.resize(content.len().max(*length), 0),
        Change::Hole { offset, bytes } => {
            let end = content.len().min(offset + bytes);
            let start = end.min(*offset);
            content[start..end].fill(0);
        }
        _ => {}
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            nodes: vec![Node::Directory(Directory::default())],
            numbers: HashMap::new(),
            syncs: HashMap::new(),
        }
    }
}

impl Disk {
    /// A disk on which everything that is below `path` is durable.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(path: &Path) -> Result<Self> {
        let mut disk = Self::default();
        disk.take(path, ROOT)?;
        Ok(disk)
    }

    fn take(&mut self, path: &Path, into: Id) -> Result<()> {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let directory = entry.file_type()?.is_dir();
            let id = self.nodes.len();
            self.nodes.push(if directory {
                Node::Directory(Directory::default())
            } else {
                Node::File(File {
                    durable: fs::read(entry.path())?,
                    ..File::default()
                })
            });
            let above = self.directory_mut(into)?;
            above.durable.insert(name.clone(), id);
            above.now.insert(name, id);
            if directory {
                self.take(&entry.path(), id)?;
            }
        }
        Ok(())
    }

    /// A file or directory.
    #[must_use]
    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[id]
    }

    /// All of them, those without a name too.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    fn directory_mut(&mut self, id: Id) -> Result<&mut Directory> {
        match &mut self.nodes[id] {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => bail!("a file is used as a directory"),
        }
    }

    fn directory(&self, id: Id) -> Result<&Directory> {
        match &self.nodes[id] {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => bail!("a file is used as a directory"),
        }
    }

    /// The directory above a path, and the last name of it.
    fn above(&self, path: &Path) -> Result<(Id, String)> {
        let mut parts: Vec<String> = path
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        let name = parts.pop().context("the root has no name")?;
        let mut id = ROOT;
        for part in parts {
            let names = &self.directory(id)?.now;
            id = *names
                .get(&part)
                .with_context(|| format!("{} is in no directory", path.display()))?;
        }
        Ok((id, name))
    }

    fn by_number(&self, event: &Event) -> Result<Id> {
        let id = self.numbers.get(&event.inode);
        id.copied()
            .with_context(|| format!("inode {} was never opened", event.inode))
    }

    /// Does what an event says; events come in their order.
    ///
    /// # Errors
    /// If it does not fit what came before: then something escaped the recording.
    pub fn advance(&mut self, event: &Event) -> Result<()> {
        match &event.change {
            Change::Opened { path, made: true } => {
                self.make(path, event.inode, Node::File(File::default()))?
            }
            Change::Opened { path, .. } if path.as_os_str().is_empty() => {
                self.numbers.insert(event.inode, ROOT);
            }
            Change::Opened { path, made: false } => {
                let (above, name) = self.above(path)?;
                let known = self.directory(above)?.now.get(&name);
                let id = *known.with_context(|| format!("{} was made unseen", path.display()))?;
                self.numbers.insert(event.inode, id);
            }
            Change::Directory(path) => self.make(path, event.inode, Node::Directory(Directory::default()))?,
            Change::Renamed { from, to } => {
                let ((above, old), (other, new)) = (self.above(from)?, self.above(to)?);
                if above == other {
                    self.name(above, Naming::Renamed(old, new))?;
                } else {
                    // Each directory keeps its half by itself: less than any file system promises.
                    let id = self.directory(above)?.now.get(&old).copied();
                    let id = id.with_context(|| format!("{} was made unseen", from.display()))?;
                    self.name(other, Naming::Made(new, id))?;
                    self.name(above, Naming::Removed(old))?;
                }
            }
            Change::Removed(path) => {
                let (above, name) = self.above(path)?;
                self.name(above, Naming::Removed(name))?;
            }
            Change::SyncBegan(number) => {
                let id = self.by_number(event)?;
                let covers = match &self.nodes[id] {
                    Node::File(file) => file.folded + file.pending.len(),
                    Node::Directory(directory) => directory.folded + directory.pending.len(),
                };
                self.syncs.insert((event.process, *number), (id, covers));
            }
            Change::SyncEnded(number) => {
                let began = self.syncs.remove(&(event.process, *number));
                let (id, covers) = began.context("a sync ended that never began")?;
                self.fold(id, covers);
            }
            Change::Written { .. } | Change::Length(_) | Change::Hole { .. } | Change::Extended(_) => {
                let id = self.by_number(event)?;
                let Node::File(file) = &mut self.nodes[id] else {
                    bail!("a directory is used as a file");
                };
                file.pending.push(event.change.clone());
            }
        }
        Ok(())
    }

    fn make(&mut self, path: &Path, inode: u64, node: Node) -> Result<()> {
        let (above, name) = self.above(path)?;
        let id = self.nodes.len();
        self.nodes.push(node);
        self.numbers.insert(inode, id);
        self.name(above, Naming::Made(name, id))
    }

    fn name(&mut self, above: Id, naming: Naming) -> Result<()> {
        let directory = self.directory_mut(above)?;
        rename(&mut directory.now, [&naming]);
        directory.pending.push(naming);
        Ok(())
    }

    fn fold(&mut self, id: Id, covers: usize) {
        match &mut self.nodes[id] {
            Node::File(file) => {
                // Another sync that began later may have ended before.
                let count = covers.saturating_sub(file.folded);
                for change in file.pending.drain(..count) {
                    apply(&mut file.durable, &change);
                }
                file.folded += count;
            }
            Node::Directory(directory) => {
                let count = covers.saturating_sub(directory.folded);
                let namings: Vec<Naming> = directory.pending.drain(..count).collect();
                rename(&mut directory.durable, &namings);
                directory.folded += count;
            }
        }
    }
}
