//! The OpenAPI document, and whether what the service answers is what it says there.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde_json::Value;

use super::{Answer, Service};

/// What the service says about itself.
pub struct Document(Value);

/// Statuses that any request may meet before it comes to what the path is for: not understood, no
/// token, another site, no such method, limits, a name that cannot be one, trouble behind.
const ANYWHERE: [u16; 10] = [400, 401, 403, 405, 408, 413, 415, 422, 429, 503];

impl Document {
    /// All services of one program say the same: the first that is asked tells it.
    pub fn of(service: &Service) -> &'static Self {
        static DOCUMENT: OnceLock<Document> = OnceLock::new();
        let ask = || service.send_unchecked("GET", "/openapi.json", &[], "");
        DOCUMENT.get_or_init(|| Self(ask().json()))
    }

    /// Fails unless this answer to this request is described.
    #[track_caller]
    pub fn check(&self, method: &str, path: &str, answer: &Answer) {
        let path = path.split(['?', '#']).next().unwrap();
        let method = method.to_lowercase();
        let Some(operation) = self.operation(&method, path) else {
            // Methods that OpenAPI has no word for, and files.
            let is_unsaid = ["lock", "unlock"].contains(&method.as_str());
            assert!(
                answer.status >= 400 || is_unsaid || !path.starts_with("/api/"),
                "{method} {path} is not described, and answered {answer:?}"
            );
            return;
        };
        let responses = &operation["responses"];
        let described = &responses[answer.status.to_string()];
        if described.is_null() {
            assert!(
                ANYWHERE.contains(&answer.status),
                "{method} {path} answered {}, which is not described: {answer:?}",
                answer.status
            );
            return;
        }
        let kind = answer.header("content-type");
        let kind = kind.split(';').next().unwrap();
        let content = described["content"].as_object();
        let Some(content) = content.filter(|content| !content.is_empty()) else {
            assert_eq!(answer.text, "", "{method} {path}: no body is described");
            return;
        };
        let schema = content.get(kind).or_else(|| {
            // utoipa describes problems as plain JSON.
            let is_problem = kind == "application/problem+json";
            is_problem.then(|| content.get("application/json"))?
        });
        let Some(schema) = schema else {
            panic!("{method} {path}: `{kind}` is not described among {content:?}");
        };
        if kind.ends_with("json") {
            let faults = self.faults(&schema["schema"], &answer.json(), "$");
            assert!(
                faults.is_empty(),
                "{method} {path}: {faults:#?} in {answer:?}"
            );
        }
    }

    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let paths = self.0["paths"].as_object().unwrap();
        let exact = paths.get(path);
        let matching = || paths.iter().find(|(template, _)| is_of(template, path));
        let found = exact.or_else(|| matching().map(|(_, item)| item))?;
        found.get(method)
    }

    /// What is wrong with a value.
    fn faults(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        if let Some(name) = schema["$ref"].as_str() {
            let pointer = name.trim_start_matches('#');
            let target = self.0.pointer(pointer);
            let target = target.unwrap_or_else(|| panic!("{name} leads nowhere"));
            return self.faults(target, value, at);
        }
        for several in ["oneOf", "anyOf"] {
            if let Some(options) = schema[several].as_array() {
                let faults = options.iter().map(|it| self.faults(it, value, at));
                return faults.min_by_key(Vec::len).unwrap_or_default();
            }
        }
        let parts = schema["allOf"].as_array().into_iter().flatten();
        let mut faults: Vec<String> = parts.flat_map(|it| self.faults(it, value, at)).collect();
        if !is_of_type(&schema["type"], value) {
            faults.push(format!(
                "{at} is {value} and not of type {}",
                schema["type"]
            ));
            return faults;
        }
        if let Some(words) = schema["enum"].as_array()
            && !words.contains(value)
        {
            faults.push(format!("{at} is {value} and none of {words:?}"));
        }
        for field in schema["required"].as_array().into_iter().flatten() {
            if value.get(field.as_str().unwrap()).is_none() {
                faults.push(format!("{at} lacks {field}"));
            }
        }
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(inner) = value.get(field) {
                faults.extend(self.faults(schema, inner, &format!("{at}.{field}")));
            }
        }
        if let (Some(values), items) = (value.as_array(), &schema["items"]) {
            let inner = values.iter().enumerate();
            faults.extend(inner.flat_map(|(n, it)| self.faults(items, it, &format!("{at}[{n}]"))));
        }
        faults
    }
}

/// Whether a path is one of a template's, as `/locks/a` is of `/locks/{name}`.
fn is_of(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    let is_part = |(wanted, given): (&&str, &&str)| {
        (wanted.starts_with('{') && !given.is_empty()) || wanted == given
    };
    template.len() == path.len() && template.iter().zip(&path).all(is_part)
}

fn is_of_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    };
    match wanted {
        Value::Null => true,
        Value::Array(several) => several.iter().any(is),
        one => is(one),
    }
}

#[tenure_testkit::test]
fn the_document_describes_every_path_once_and_refers_to_what_is_there() {
    let service = Service::start(&[]);
    let Document(document) = Document::of(&service);
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap_or_default();
            assert!(
                !id.is_empty() && ids.insert(id.to_owned()),
                "{method} {path}: `{id}`"
            );
            let answers = operation["responses"].as_object().unwrap();
            assert!(!answers.is_empty(), "{method} {path} has no answers");
            let said = operation["summary"].as_str().unwrap_or_default();
            assert!(
                !said.is_empty(),
                "{method} {path} does not say what it does"
            );
        }
    }
    let text = document.to_string();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(
            document.pointer(pointer).is_some(),
            "{pointer} leads nowhere"
        );
    }
}

#[tenure_testkit::test]
fn a_checker_that_finds_nothing_would_find_nothing() {
    let document = Document(
        serde_json::json!({"paths": {"/a/{b}": {"get": {"responses": {"200": {
        "content": {"application/json": {"schema": {"type": "object", "required": ["n"],
            "properties": {"n": {"type": "integer"}, "w": {"type": ["string", "null"], "enum": ["x", null]}}}}}}}}}}}),
    );
    let operation = document.operation("get", "/a/1").unwrap();
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    let faults = |value| document.faults(schema, &value, "$").len();
    assert_eq!(faults(serde_json::json!({"n": 1, "w": null})), 0);
    assert_eq!(faults(serde_json::json!({"w": "x"})), 1);
    assert_eq!(faults(serde_json::json!({"n": "1"})), 1);
    assert_eq!(faults(serde_json::json!({"n": 1, "w": "y"})), 1);
    assert_eq!(faults(serde_json::json!([])), 1);
    assert!(document.operation("get", "/a/1/2").is_none());
}

#[tenure_testkit::test]
fn what_is_written_about_the_service_is_there() {
    let service = Service::start(&[]);
    let Document(document) = Document::of(&service);
    let text = include_str!("../../../../../docs/service.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let requests = rows.filter_map(|row| row.split('`').next()?.split_once(' '));
    let requests: Vec<_> = requests
        .filter(|(method, _)| ["GET", "POST", "PUT", "DELETE"].contains(method))
        .collect();
    assert!(requests.len() > 10, "{requests:?}");
    for (method, path) in requests {
        let operation = &document["paths"][path][method.to_lowercase()];
        assert!(!operation.is_null(), "there is no `{method} {path}`");
    }
}
