//! Finds circular imports between the modules of each crate. Modules in a circle can only be understood
//! together, so circles must stay small.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's path inside the crate; empty for the crate root.
type Module = Vec<String>;
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// The largest circle of modules that a crate may have.
const CYCLE_MAX: usize = 5;

#[test]
fn no_crate_has_a_large_circle_of_imports() {
    for source in crates() {
        let name = source.file_name().unwrap().to_str().unwrap();
        let imports = imports(&read(&source.join("src")));
        let cycle = cycles(&imports).into_iter().max_by_key(Vec::len);
        let found = cycle.as_ref().map_or(1, Vec::len);
        assert!(
            found <= CYCLE_MAX,
            "{found} modules of `{name}` import each other in a circle, {CYCLE_MAX} may: {}",
            shown(&cycle.unwrap_or_default(), &imports)
        );
    }
}

#[test]
fn circles_are_found() {
    let module = |path: &str, text: &str| (split(path), text.to_owned());
    let modules = BTreeMap::from([
        module("", "mod a; mod b;"),
        module("a", "use crate::b::{Thing, deep::{Other, self}};"),
        module("b", "pub(crate) struct Thing;"),
        module(
            "b::deep",
            "fn f() { super::super::c::g() } // use crate::d;",
        ),
        module("c", "use crate::a;"),
        module(
            "d",
            "const WHAT: &str = \"crate::a\"; use crate::a::Name as Else;",
        ),
    ]);
    let found = cycles(&imports(&modules));
    assert_eq!(found, [["a", "b::deep", "c"].map(split)]);
}

fn crates() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let entries = fs::read_dir(folder).unwrap();
    let mut crates: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    crates.retain(|path| path.join("Cargo.toml").exists());
    crates.sort();
    crates
}

/// The text of every module under `source`.
fn read(source: &Path) -> BTreeMap<Module, String> {
    let mut modules = BTreeMap::new();
    let mut folders = vec![(source.to_owned(), Module::new())];
    while let Some((folder, path)) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let file = entry.unwrap().path();
            let stem = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let child = || [path.clone(), vec![stem.clone()]].concat();
            if file.is_dir() {
                folders.push((file.clone(), child()));
            } else if file.extension().is_some_and(|it| it == "rs") {
                let is_folder = ["lib", "main", "mod"].contains(&stem.as_str());
                let module = if is_folder { path.clone() } else { child() };
                modules.insert(module, fs::read_to_string(&file).unwrap());
            }
        }
    }
    modules
}

/// What each module imports from the same crate, except the root, which only declares the others.
fn imports(modules: &BTreeMap<Module, String>) -> Imports {
    let mut imports = Imports::new();
    for (module, text) in modules {
        let mut imported = BTreeSet::new();
        for path in paths(&code_of(text)) {
            let Some(mut target) = absolute(module, &path, modules) else {
                continue;
            };
            while !modules.contains_key(&target) {
                target.pop();
            }
            if !target.is_empty() && target != *module {
                imported.insert(target);
            }
        }
        if !module.is_empty() {
            imports.insert(module.clone(), imported);
        }
    }
    imports
}

fn absolute(
    module: &[String],
    path: &[String],
    modules: &BTreeMap<Module, String>,
) -> Option<Module> {
    let first = path.first()?.as_str();
    let up = path.iter().take_while(|part| *part == "super").count();
    let (base, rest) = match first {
        "crate" => (&module[..0], &path[1..]),
        "self" => (module, &path[1..]),
        "super" => (&module[..module.len().checked_sub(up)?], &path[up..]),
        _ => (module, path),
    };
    let absolute = [base, rest].concat();
    let is_ours = first == "crate" || first == "self" || first == "super";
    let child = [module, &path[..1]].concat();
    (is_ours || modules.contains_key(&child)).then_some(absolute)
}

/// All paths of `use` declarations, and those that begin with `crate`, `self` or `super` elsewhere.
fn paths(text: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let mut end = 0;
    for (at, _) in text.match_indices(|c: char| c.is_alphabetic()) {
        if at < end || text[..at].ends_with(|c: char| is_word(c) || c == ':') {
            continue;
        }
        // The path in a visibility such as `pub(in crate::engine)` imports nothing.
        if text[..at].ends_with("(in ") {
            end = at + text[at..].find(')').unwrap_or(0);
            continue;
        }
        let rest = &text[at..];
        if let Some(tree) = rest.strip_prefix("use ") {
            let tree = &tree[..tree.find(';').unwrap_or(tree.len())];
            end = at + "use ".len() + tree.len();
            expand(&[], tree, &mut found);
        } else if ["crate::", "self::", "super::"]
            .iter()
            .any(|it| rest.starts_with(it))
        {
            let path = &rest[..rest.find(|c| !is_word(c) && c != ':').unwrap_or(rest.len())];
            end = at + path.len();
            found.push(split(path));
        }
    }
    found
}

/// The paths of a tree such as `a::{b, c::{d, e}}`.
fn expand(prefix: &[String], tree: &str, found: &mut Vec<Module>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        found.push([prefix, &split(path)].concat());
        return;
    };
    let prefix = [prefix, &split(&tree[..open])].concat();
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[begin..at].trim().is_empty() {
                    expand(&prefix, &inner[begin..at], found);
                }
                begin = (at + 1).min(inner.len());
            }
            _ => {}
        }
    }
}

fn split(path: &str) -> Module {
    let parts = path.split("::").map(str::trim);
    let parts = parts.filter(|part| !part.is_empty() && *part != "self" || path == "self");
    parts.map(str::to_owned).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Strips comments, string literals and unit tests, which may import anything.
fn code_of(text: &str) -> String {
    let mut rest = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut code = String::new();
    while let Some(c) = rest.chars().next() {
        let skipped = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '"' => text_length(rest),
            // Other character literals do no harm, and lifetimes look like them.
            '\'' if rest.starts_with("'\"'") => 3,
            _ => 0,
        };
        if skipped == 0 {
            code.push(c);
        }
        rest = &rest[skipped.max(c.len_utf8())..];
    }
    code
}

/// The length of the string literal at the beginning. A raw one ends at its first quote, so its rest looks
/// like code; none of ours contains an import.
fn text_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Modules that import each other in a circle, however long: the strongly connected components that
/// have more than one module.
fn cycles(imports: &Imports) -> Vec<Vec<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = imports
        .keys()
        .map(|module| (module, reachable(imports, module)))
        .collect();
    let mut cycles = BTreeSet::new();
    for module in imports.keys() {
        let others = reached[module].iter().copied();
        let circle = others.filter(|other| reached[*other].contains(module));
        let circle: Vec<Module> = circle.cloned().collect();
        if circle.len() > 1 {
            cycles.insert(circle);
        }
    }
    cycles.into_iter().collect()
}

fn reachable<'a>(imports: &'a Imports, from: &Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Module> = imports[from].iter().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(imports.get(module).into_iter().flatten());
        }
    }
    reached
}

fn shown(cycle: &[Module], imports: &Imports) -> String {
    let line = |module: &Module| {
        let inside = imports[module].iter().filter(|it| cycle.contains(it));
        let inside: Vec<_> = inside.map(|it| it.join("::")).collect();
        format!("\n  {} imports {}", module.join("::"), inside.join(", "))
    };
    cycle.iter().map(line).collect()
}
