//! What is shipped for Prometheus and Grafana: alerts and a dashboard that name only what a service
//! really tells.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenure_testkit::eventually;

use super::locks::{SOON, acquire, release};
use super::shop::Grown;
use super::{Answer, Service};

/// What Prometheus adds to every row by itself.
const ADDED: [&str; 2] = ["job", "instance"];
/// What may stand in an expression that is neither a metric nor a function.
const WORDS: [&str; 6] = ["by", "without", "or", "unless", "offset", "up"];

/// The labels of each metric, by its name as it is asked for.
type Told = BTreeMap<String, BTreeSet<String>>;

#[tenure_testkit::test]
fn alerts_and_dashboard_name_only_what_is_told() {
    let shop = Grown::up();
    let service = shop.instance(&[]);
    let told = told_after_traffic(&service);
    let expressions: Vec<String> = [rules(), dashboard()].concat();
    assert!(expressions.len() > 50, "{expressions:#?}");
    let faults = expressions.iter().flat_map(|it| faults(it, &told));
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{faults:#?}\nin\n{told:#?}");
    let document = fs::read_to_string(root().join("docs/service.md")).unwrap();
    let is_described = |name: &String| {
        let parts = ["_bucket", "_count", "_sum"];
        let name = parts
            .iter()
            .find_map(|it| name.strip_suffix(it))
            .unwrap_or(name);
        name.starts_with("process_") || document.contains(&format!("`{name}`"))
    };
    let missing: Vec<_> = told.keys().filter(|name| !is_described(name)).collect();
    assert!(missing.is_empty(), "docs/service.md lacks {missing:?}");
}

#[tenure_testkit::test]
fn what_is_not_told_is_noticed() {
    let labels = |labels: &[&str]| labels.iter().map(ToString::to_string).collect();
    let told: Told = [
        ("a_total".to_owned(), labels(&["lock"])),
        ("b_bucket".to_owned(), labels(&["le", "lock"])),
    ]
    .into();
    for right in [
        r#"sum by (lock) (rate(a_total{lock=~"x|y",job="b_total"}[5m])) > 0.5"#,
        "histogram_quantile(0.99, sum by (le, instance) (rate(b_bucket[$__rate_interval])))",
        "increase(a_total[5m]) > 0 or (a_total unless a_total offset 5m) > 0",
        "`{{ $labels.lock }}` at {{instance}}",
        "label_values(a_total, lock)",
    ] {
        assert_eq!(faults(right, &told), [""; 0], "{right}");
    }
    for wrong in [
        "rate(c_total[5m])",
        r#"a_total{item="x"}"#,
        "sum by (item) (a_total)",
        "sum by (le) (rate(a_total[5m]))",
        "{{item}}",
        "{{ $labels.item }}",
        "label_values(a_total, item)",
    ] {
        assert_eq!(faults(wrong, &told).len(), 1, "{wrong}");
    }
}

/// Lets everything happen that is counted, and reads what is told of it.
fn told_after_traffic(service: &Service) -> Told {
    let path = "/api/v1/locks/order:1";
    let lease = acquire(service, "order:1", &json!({}));
    let id = lease["lease_id"].as_str().unwrap();
    let renewal = json!({"lease_id": id});
    service.put(&format!("{path}/lease"), &renewal).is(200);
    service.delete(&format!("{path}?lease_id={id}&force=true"));
    let lease = acquire(service, "order:1", &json!({}));
    release(service, "order:1", &lease).is(204);
    service.stock("sku-7", 5);
    service.ordered("sku-7", "anna", "1");
    let mut told = Told::new();
    let all_told = eventually(SOON, || {
        told = read(&service.get("/metrics"));
        let has = |name: &str, label: &str| told.get(name).is_some_and(|it| it.contains(label));
        has("tenure_sale_drift", "item") && has("tenure_sale_units_left", "item")
    });
    assert!(all_told, "{told:#?}");
    told
}

/// The names of all metrics, as they are asked for, and the labels of their rows.
fn read(metrics: &Answer) -> Told {
    let mut told = Told::new();
    let lines = metrics.is(200).text.lines();
    for line in lines
        .clone()
        .filter_map(|line| line.strip_prefix("# TYPE "))
    {
        let (name, kind) = line.split_once(' ').unwrap();
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_count", "_sum"],
            _ => &[""],
        };
        told.extend(
            suffixes
                .iter()
                .map(|it| (format!("{name}{it}"), BTreeSet::new())),
        );
    }
    for line in lines.filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let labels = told.get_mut(name);
        let labels = labels.unwrap_or_else(|| panic!("`{line}` has no type"));
        labels.extend(selected(line).into_iter().map(|(_, label)| label));
    }
    told
}

/// The expressions of the alerts, and what they say to people.
fn rules() -> Vec<String> {
    let text = shipped("prometheus/rules.yml");
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (mut found, mut lines) = (Vec::new(), text.lines().peekable());
    while let Some(line) = lines.next() {
        let (field, rest) = line.trim().split_once(": ").unwrap_or_default();
        if !["expr", "summary", "description"].contains(&field) {
            continue;
        }
        let mut whole = rest.trim_matches(['|', '>', '-']).to_owned();
        while let Some(next) = lines.next_if(|next| indent(next) > indent(line)) {
            whole = format!("{whole} {}", next.trim());
        }
        found.push(if field == "expr" {
            whole
        } else {
            shown_in(&whole)
        });
    }
    found
}

/// What panels ask for, how they call it, and what can be chosen.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&shipped("grafana/tenure.json")).unwrap();
    let mut found = Vec::new();
    collect(&dashboard, &mut found);
    found
}

fn collect(value: &Value, found: &mut Vec<String>) {
    for (field, inner) in value.as_object().into_iter().flatten() {
        match (field.as_str(), inner.as_str()) {
            ("expr", Some(text)) => found.push(text.to_owned()),
            ("query", Some(text)) if text.starts_with("label_values") => {
                found.push(text.to_owned());
            }
            ("legendFormat", Some(text)) => found.push(shown_in(text)),
            _ => collect(inner, found),
        }
    }
    for inner in value.as_array().into_iter().flatten() {
        collect(inner, found);
    }
}

fn shipped(file: &str) -> String {
    fs::read_to_string(root().join("deploy").join(file)).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Only what stands in braces: the rest is for people.
fn shown_in(text: &str) -> String {
    let parts = text.split("{{").skip(1);
    let shown = parts.map(|part| format!("{{{{{}}}}}", part.split("}}").next().unwrap()));
    shown.collect()
}

/// What an expression names that is not told.
fn faults(expression: &str, told: &Told) -> Vec<String> {
    let fault = |what: &str| format!("`{what}` in `{expression}`");
    if expression.contains("{{") {
        return shown_labels(expression)
            .filter(|label| !is_label(label, told.values()))
            .map(|label| fault(&label))
            .collect();
    }
    let mut faults = Vec::new();
    let chosen = expression.strip_prefix("label_values(");
    let (plain, grouped) = match chosen.and_then(|it| it.trim_end_matches(')').split_once(", ")) {
        Some((metric, label)) => (metric.to_owned(), vec![label.to_owned()]),
        None => without_groups(expression),
    };
    let metrics: BTreeSet<String> = metrics_of(&plain);
    faults.extend(
        metrics
            .iter()
            .filter(|it| !told.contains_key(*it))
            .map(|it| fault(it)),
    );
    for (metric, label) in selected(&plain) {
        let labels = told.get(&metric);
        if labels.is_some() && !is_label(&label, labels) {
            faults.push(fault(&label));
        }
    }
    let of_metrics = || metrics.iter().filter_map(|metric| told.get(metric));
    let missing = grouped.iter().filter(|it| !is_label(it, of_metrics()));
    faults.extend(missing.map(|it| fault(it)));
    faults
}

fn is_label<'a>(label: &str, of: impl IntoIterator<Item = &'a BTreeSet<String>>) -> bool {
    ADDED.contains(&label) || of.into_iter().any(|labels| labels.contains(label))
}

fn shown_labels(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split("{{").skip(1);
    let shown = parts.map(|part| part.split("}}").next().unwrap().trim());
    let labels = shown.map(|it| it.trim_start_matches("$labels.").to_owned());
    labels.filter(|it| it != "$value")
}

/// The expression without what it groups by, and that.
fn without_groups(expression: &str) -> (String, Vec<String>) {
    let (mut plain, mut grouped) = (String::new(), Vec::new());
    let mut rest = expression;
    while let Some((before, after)) = rest.split_once(" by (") {
        let (labels, after) = after.split_once(')').unwrap();
        grouped.extend(labels.split(',').map(|label| label.trim().to_owned()));
        plain.push_str(before);
        rest = after;
    }
    (plain + rest, grouped)
}

/// All words that are no functions, and stand in no braces, brackets or quotes.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = expression;
    while let Some(start) = rest.find(|it: char| it.is_alphanumeric() || "_{[".contains(it)) {
        rest = &rest[start..];
        let length = match rest.as_bytes()[0] {
            b'{' => rest.find('}').unwrap(),
            b'[' => rest.find(']').unwrap(),
            _ => {
                let end = rest.find(|it: char| !it.is_alphanumeric() && !"_.".contains(it));
                end.unwrap_or(rest.len())
            }
        };
        let (word, after) = rest.split_at(length);
        let is_name = word.starts_with(|it: char| it.is_alphabetic() || it == '_');
        let is_function = after.trim_start().starts_with('(');
        if is_name && !is_function && !WORDS.contains(&word) {
            found.insert(word.to_owned());
        }
        rest = after;
    }
    found
}

/// Each label in braces, with the metric before them.
fn selected(expression: &str) -> Vec<(String, String)> {
    // What stands in quotes is a value, and may hold braces itself.
    let unquoted: Vec<&str> = expression.split('"').step_by(2).collect();
    let unquoted = unquoted.join("");
    let is_name = |it: char| it.is_alphanumeric() || it == '_';
    let mut found = Vec::new();
    let mut rest = unquoted.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let metric = before.rsplit(|it| !is_name(it)).next().unwrap_or_default();
        let (inside, after) = after.split_once('}').unwrap();
        let names = inside.split(|it| !is_name(it)).filter(|it| !it.is_empty());
        found.extend(names.map(|it| (metric.to_owned(), it.to_owned())));
        rest = after;
    }
    found
}
