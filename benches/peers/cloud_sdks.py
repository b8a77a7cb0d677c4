"""The clouds' official SDKs as judges of what gradus sends: `cloud_sdks.py FILE`, a request a line, as JSON with the keys
`cloud`, `name`, `method`, `url`, `headers` and `body`.

Each request is taken apart by the SDK's own model of the API, which knows every name that may be sent, and sent again by the
SDK, to nobody. What it sends must be the same: method, path, query and body; for AWS the signature too.
"""

import base64
import datetime
import json
import sys
from unittest import mock
from urllib.parse import parse_qsl, urlencode, urlsplit

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


class Sent(Exception):
    """What an SDK was about to send."""

    def __init__(self, method, url, body):
        super().__init__()
        self.method, self.url, self.body = method, url, body


def aws(request):
    import boto3
    from botocore import xform_name

    host = urlsplit(request["url"]).hostname
    service, region = host.split(".")[:2]
    differences = signature_of_aws(request, service, region)
    if service == "ssm":
        # It speaks JSON; only the signature is compared.
        return differences
    form = dict(parse_qsl(request["body"], keep_blank_values=True))
    left = dict(form)
    action, version = left.pop("Action"), left.pop("Version")
    client = boto3.client(service, region, aws_access_key_id=KEY, aws_secret_access_key=SECRET)
    model = client.meta.service_model
    if version != model.api_version:
        differences.append(f"version {version}, and not {model.api_version}")
    shape = model.operation_model(action).input_shape
    params = taken(shape, "", left) if shape else {}
    if left:
        return [*differences, f"names that {action} does not know: {sorted(left)}"]
    if "UserData" in params:
        # The SDK encodes it.
        params["UserData"] = base64.b64decode(params["UserData"])

    def send(request, **_):
        raise Sent(request.method, request.url, request.body)

    client.meta.events.register("before-send.*.*", send)
    try:
        getattr(client, xform_name(action))(**params)
    except Sent as sent:
        body = sent.body.decode() if isinstance(sent.body, bytes) else sent.body
        theirs = dict(parse_qsl(body, keep_blank_values=True))
        differences += differing("method", request["method"], sent.method)
        differences += differing("path", urlsplit(request["url"]).path, urlsplit(sent.url).path)
        differences += differing("host", host, urlsplit(sent.url).hostname)
        return differences + differing("form", form, theirs)
    return [*differences, "the SDK sent nothing"]


def taken(shape, prefix, form):
    """What a form holds of a structure, by the SDK's names; taken out of the form."""
    found = {}
    for name, member in shape.members.items():
        serialization = member.serialization
        key = serialization.get("queryName") or serialization.get("name") or name
        key = prefix + (key if serialization.get("queryName") else key[0].upper() + key[1:])
        value = taken_value(member, key, form)
        if value is not None:
            found[name] = value
    return found


def taken_value(shape, key, form):
    if shape.type_name == "structure":
        return taken(shape, key + ".", form) or None
    if shape.type_name == "list":
        items, number = [], 1
        while (item := taken_value(shape.member, f"{key}.{number}", form)) is not None:
            items.append(item)
            number += 1
        return items or None
    text = form.pop(key, None)
    if text is None:
        return None
    convert = {"integer": int, "long": int, "float": float, "double": float, "boolean": lambda text: text == "true"}
    return convert.get(shape.type_name, str)(text)


def signature_of_aws(request, service, region):
    from botocore import auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    headers = request["headers"]
    ours = headers["authorization"]
    signed = ours.split("SignedHeaders=")[1].split(",")[0].split(";")
    kept = {name: headers[name] for name in signed if name not in ("host", "x-amz-date")}
    again = AWSRequest(request["method"], request["url"], headers=kept, data=request["body"].encode())
    at = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
    with mock.patch.object(auth, "get_current_datetime", lambda remove_tzinfo=True: at):
        auth.SigV4Auth(Credentials(KEY, SECRET), service, region).add_auth(again)
    return differing("signature", spaced(ours), spaced(again.headers["Authorization"]))


def spaced(text):
    """An `Authorization` header without the spaces after its commas."""
    return text.replace(", ", ",")


def gcp(request):
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import compute_v1
    from google.cloud.compute_v1.services.instances.transports import InstancesRestTransport

    transport = InstancesRestTransport(credentials=AnonymousCredentials())
    client = compute_v1.InstancesClient(transport=transport)
    for method in ["get", "post", "delete"]:
        setattr(transport._session, method, session_of_google(method))
    url = urlsplit(request["url"])
    query = dict(parse_qsl(url.query))
    parts = url.path.split("/")[1:]
    try:
        match request["method"], parts:
            case "POST", ["compute", "v1", "projects", project, "zones", zone, "instances"]:
                machine = compute_v1.Instance.from_json(request["body"], ignore_unknown_fields=False)
                asked = compute_v1.InsertInstanceRequest(
                    project=project, zone=zone, instance_resource=machine, request_id=query.get("requestId"))
                client.insert(request=asked)
            case "DELETE", ["compute", "v1", "projects", project, "zones", zone, "instances", name]:
                client.delete(project=project, zone=zone, instance=name)
            case "GET", ["compute", "v1", "projects", project, "aggregated", "instances"]:
                asked = compute_v1.AggregatedListInstancesRequest(
                    project=project, filter=query["filter"], max_results=int(query["maxResults"]))
                client.aggregated_list(request=asked)
            case _:
                return ["a request that is not compared"]
    except Sent as sent:
        theirs = urlsplit(sent.url)
        differences = differing("method", request["method"], sent.method.upper())
        differences += differing("path", url.path, theirs.path)
        differences += differing("host", url.hostname, theirs.hostname)
        differences += differing("query", query, dict(parse_qsl(theirs.query)))
        ours = json.loads(request["body"]) if request["body"] else None
        return differences + differing("body", ours, json.loads(sent.body) if sent.body else None)
    return ["the SDK sent nothing"]


def session_of_google(method):
    """Stands in for a method of the session of Google's transport."""

    def send(url, timeout=None, headers=None, params=None, data=None):
        # What says how the answer is to look is not part of the request.
        pairs = [(key, value) for key, value in params or [] if key != "$alt"]
        raise Sent(method, f"{url}?{urlencode(pairs)}", data)

    return send


def azure(request):
    from azure.core.credentials import AccessToken
    from azure.core.pipeline.transport import HttpTransport
    from azure.mgmt.compute import ComputeManagementClient

    class Transport(HttpTransport):
        def send(self, request, **_):
            raise Sent(request.method, request.url, (request.body or b"", dict(request.headers)))

        def open(self):
            pass

        def close(self):
            pass

        def __exit__(self, *_):
            pass

    class Credential:
        def get_token(self, *_, **__):
            return AccessToken("token", 4_000_000_000)

    url = urlsplit(request["url"])
    query = dict(parse_qsl(url.query))
    parts = url.path.split("/")[1:]
    if "Microsoft.Compute" not in parts:
        return []
    subscription, group = parts[1], parts[3]
    client = ComputeManagementClient(
        Credential(), subscription, transport=Transport(), api_version=query["api-version"], retry_total=0)
    machines = client.virtual_machines
    differences = []
    try:
        match request["method"]:
            case "PUT":
                body = json.loads(request["body"])
                models = client.models(query["api-version"])
                differences += unknown_to_azure(models, models.VirtualMachine, body, "")
                machine = models.VirtualMachine.deserialize(body)
                machines.begin_create_or_update(group, parts[-1], machine, if_none_match="*")
            case "DELETE":
                machines.begin_delete(group, parts[-1], force_deletion=True)
            case "GET" if parts[-2] == "virtualMachines":
                machines.get(group, parts[-1])
            case "GET":
                list(machines.list(group))
            case other:
                return [f"{other} is not compared"]
    except Sent as sent:
        theirs, (body, headers) = urlsplit(sent.url), sent.body
        differences += differing("method", request["method"], sent.method)
        differences += differing("path", url.path.lower(), theirs.path.lower())
        differences += differing("query", query, dict(parse_qsl(theirs.query)))
        differences += differing("if-none-match", request["headers"].get("if-none-match"), headers.get("If-None-Match"))
        ours = json.loads(request["body"]) if request["body"] else None
        return differences + differing("body", ours, json.loads(body) if body else None)
    return [*differences, "the SDK sent nothing"]


def unknown_to_azure(models, model, value, path):
    """Names that a model of the SDK does not have."""
    # A `.` parts what is nested, and is escaped in a name.
    known = {field["key"]: field["type"] for field in model._attribute_map.values()}
    unknown = []
    for name, inner in flattened(value, known):
        if name not in known:
            unknown.append(f"{model.__name__} does not know `{path}{name}`")
            continue
        found = getattr(models, known[name].strip("[]{}"), None)
        for one in inner if isinstance(inner, list) else [inner]:
            if found is not None and isinstance(one, dict) and hasattr(found, "_attribute_map"):
                unknown += unknown_to_azure(models, found, one, f"{path}{name}.")
    return unknown


def flattened(value, known):
    """Names and values, with those of `properties` where the SDK has them a level higher."""
    for name, inner in value.items():
        if name not in known and isinstance(inner, dict) and any(key.startswith(f"{name}.") for key in known):
            yield from ((f"{name}.{below}", one) for below, one in inner.items())
        else:
            yield name, inner


def alibaba(request):
    from alibabacloud_ecs20140526 import models
    from alibabacloud_ecs20140526.client import Client
    from alibabacloud_tea_openapi.utils_models import Config
    from darabonba.runtime import RuntimeOptions

    url = urlsplit(request["url"])
    if not url.hostname.startswith("ecs"):
        # The SDK is that of machines alone.
        return []
    action, form = request["headers"]["x-acs-action"], dict(parse_qsl(url.query, keep_blank_values=True))
    region = form.get("RegionId")
    client = Client(Config(
        access_key_id=KEY, access_key_secret=SECRET, region_id=region, endpoint=None if region else "ecs.aliyuncs.com"))

    def send(params, asked, runtime):
        raise Sent(params.method, params, dict(asked.query))

    client.call_api = send
    asked = getattr(models, f"{action}Request")().from_map(nested(form))
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in action).strip("_")
    try:
        getattr(client, f"{name}_with_options")(asked, RuntimeOptions())
    except Sent as sent:
        differences = differing("method", request["method"], sent.method)
        differences += differing("action", action, sent.url.action)
        differences += differing("version", request["headers"]["x-acs-version"], sent.url.version)
        differences += differing("path", url.path, sent.url.pathname)
        if region:
            differences += differing("host", url.hostname, client._endpoint)
        return differences + differing("query", form, {name: str(value) for name, value in sent.body.items()})
    return ["the SDK sent nothing"]


def nested(form):
    """What `Tag.1.Key` and `SystemDisk.Size` mean: lists and structures."""
    tree = {}
    for name, value in form.items():
        *above, last = name.split(".")
        place = tree
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return listed(tree)


def listed(value):
    if not isinstance(value, dict):
        return value
    inner = {name: listed(one) for name, one in value.items()}
    if inner and all(name.isdigit() for name in inner):
        return [inner[name] for name in sorted(inner, key=int)]
    return inner


def tencent(request):
    from tencentcloud.common.credential import Credential
    from tencentcloud.cvm.v20170312 import cvm_client, models

    url, headers = urlsplit(request["url"]), request["headers"]
    if not url.hostname.startswith("cvm."):
        # The SDK is that of machines alone.
        return []
    action, caught = headers["x-tc-action"], []
    client = cvm_client.CvmClient(Credential(KEY, SECRET), headers.get("x-tc-region", ""))

    def send(action, params, options=None, headers=None):
        # What is raised here the SDK would make an error of its own.
        caught.append((action, params))
        return json.dumps({"Response": {"RequestId": "r"}})

    client.call = send
    asked = getattr(models, f"{action}Request")()
    asked._deserialize(json.loads(request["body"]))
    getattr(client, action)(asked)
    if not caught:
        return ["the SDK sent nothing"]
    differences = differing("method", request["method"], "POST")
    differences += differing("action", action, caught[0][0])
    differences += differing("version", headers["x-tc-version"], client._apiVersion)
    differences += differing("host", url.hostname, client._endpoint)
    return differences + differing("body", json.loads(request["body"]), caught[0][1])


def filled(value):
    """JSON without what is empty, which is the same as what is not there."""
    if isinstance(value, dict):
        inner = {name: filled(one) for name, one in value.items()}
        return {name: one for name, one in inner.items() if one not in ({}, [])}
    return [filled(one) for one in value] if isinstance(value, list) else value


def differing(what, ours, theirs):
    ours, theirs = filled(ours), filled(theirs)
    return [] if ours == theirs else [f"{what}: ours {ours!r}, the SDK's {theirs!r}"]


def main():
    judges = {"aws": aws, "gcp": gcp, "azure": azure, "alibaba": alibaba, "tencent": tencent}
    failed = 0
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in lines:
            request = json.loads(line)
            try:
                differences = judges[request["cloud"]](request)
            except Exception as error:
                differences = [f"the SDK refuses it: {type(error).__name__}: {str(error).splitlines()[0]}"]
            failed += bool(differences)
            print(f"{request['cloud']} {request['name']}: {'; '.join(differences) or 'the same'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
