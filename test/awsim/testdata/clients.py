"""Drives the fake AWS at sys.argv[1], and by https at sys.argv[2], with boto3 and fails where an answer is not AWS's."""
import base64
import hashlib
import io
import json
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError


def client(service, url=sys.argv[1], **more):
    return boto3.client(service, endpoint_url=url, region_name="us-east-1",
                        config=Config(retries={"total_max_attempts": 1}, signature_version="s3v4" if service == "s3" else None), **more)


def code(call, **arguments):
    try:
        call(**arguments)
    except ClientError as e:
        return e.response["Error"]["Code"]
    return "none"


def same(what, got, want):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def sqs():
    c = client("sqs")
    dead = c.create_queue(QueueName="py-dead")["QueueUrl"]
    arn = c.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    url = c.create_queue(QueueName="py-jobs", Attributes={
        "VisibilityTimeout": "600",
        "RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "2"}),
    })["QueueUrl"]
    same("url", c.get_queue_url(QueueName="py-jobs")["QueueUrl"], url)
    attribute = {"kind": {"DataType": "String", "StringValue": "grüße"}, "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"}}
    sent = c.send_message(QueueUrl=url, MessageBody="grüße", MessageAttributes=attribute, MessageGroupId="tenant")
    same("md5", sent["MD5OfMessageBody"], hashlib.md5("grüße".encode()).hexdigest())
    batch = c.send_message_batch(QueueUrl=url, Entries=[
        {"Id": "good", "MessageBody": "b"}, {"Id": "bad", "MessageBody": "c\x00"},
    ])
    same("sent", [s["Id"] for s in batch["Successful"]], ["good"])
    same("refused", [(f["Id"], f["Code"], f["SenderFault"]) for f in batch["Failed"]], [("bad", "InvalidMessageContents", True)])
    got = c.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"])["Messages"]
    got = {m["Body"]: m for m in got}
    same("bodies", sorted(got), ["b", "grüße"])
    first = got["grüße"]
    same("attributes", first["MessageAttributes"]["raw"]["BinaryValue"], b"\x00\xff")
    same("group", first["Attributes"]["MessageGroupId"], "tenant")
    same("nothing left", "Messages" in c.receive_message(QueueUrl=url), False)
    c.delete_message(QueueUrl=url, ReceiptHandle=got["b"]["ReceiptHandle"])
    for _ in range(2):
        c.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
        same("twice", code(c.change_message_visibility, QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0),
             "AWS.SimpleQueueService.MessageNotInflight")
        more = c.receive_message(QueueUrl=url).get("Messages")
        first = more[0] if more else first
    same("dead letters", [m["Body"] for m in c.receive_message(QueueUrl=dead, WaitTimeSeconds=1)["Messages"]], ["grüße"])
    same("no queue", code(c.send_message, QueueUrl=url + "x", MessageBody="a"), "AWS.SimpleQueueService.NonExistentQueue")
    same("too many", code(c.receive_message, QueueUrl=url, MaxNumberOfMessages=11), "InvalidParameterValue")
    c.purge_queue(QueueUrl=url)
    c.delete_queue(QueueUrl=url)


def secretsmanager():
    c = client("secretsmanager")
    arn = c.create_secret(Name="py/secret", SecretString='{"a":"1"}')["ARN"]
    c.put_secret_value(SecretId="py/secret", SecretString='{"a":"2"}')
    now = c.get_secret_value(SecretId=arn)
    same("current", (now["SecretString"], now["VersionStages"], now["Name"]), ('{"a":"2"}', ["AWSCURRENT"], "py/secret"))
    assert abs(now["CreatedDate"].timestamp() - time.time()) < 3600, now["CreatedDate"]
    same("previous", c.get_secret_value(SecretId=arn, VersionStage="AWSPREVIOUS")["SecretString"], '{"a":"1"}')
    same("versions", len(c.list_secret_version_ids(SecretId=arn)["Versions"]), 2)
    binary = c.create_secret(Name="py/binary", SecretBinary=b"\x00\xff")["ARN"]
    same("binary", c.get_secret_value(SecretId=binary)["SecretBinary"], b"\x00\xff")
    same("nothing", code(c.get_secret_value, SecretId="py/none"), "ResourceNotFoundException")
    c.delete_secret(SecretId=arn)
    same("deleted", code(c.get_secret_value, SecretId=arn), "InvalidRequestException")


def sts():
    c = client("sts")
    same("who", c.get_caller_identity()["Arn"], "arn:aws:iam::123456789012:user/foreign")
    role = "arn:aws:iam::123456789012:role/dayfly/py"
    arguments = dict(RoleArn=role, RoleSessionName="py-1", ExternalId="ws_1", Tags=[{"Key": "workspace", "Value": "net"}])
    got = c.assume_role(**arguments)["Credentials"]
    as_role = client("sts", aws_access_key_id=got["AccessKeyId"], aws_secret_access_key=got["SecretAccessKey"], aws_session_token=got["SessionToken"])
    same("role", as_role.get_caller_identity()["Arn"], "arn:aws:sts::123456789012:assumed-role/py/py-1")
    same("external id", code(c.assume_role, **{**arguments, "ExternalId": "other"}), "AccessDenied")
    broken = client("sts", aws_access_key_id=got["AccessKeyId"], aws_secret_access_key="wrong", aws_session_token=got["SessionToken"])
    same("signature", code(broken.get_caller_identity), "SignatureDoesNotMatch")
    # A signature of one service is none of another's, and the token must be the key's.
    stranger = client("sqs", aws_access_key_id=got["AccessKeyId"], aws_secret_access_key=got["SecretAccessKey"], aws_session_token="other")
    same("token", code(stranger.list_queues), "InvalidClientTokenId")


def send(method, url, body=None, **headers):
    """Asks without credentials, as who was given an address does."""
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    headers.setdefault("Content-Type", "")  # urllib's own is no part of a signature
    request = urllib.request.Request(url, data=body, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, context=ssl._create_unverified_context()) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


def presigned(c):
    key = dict(Bucket="py-states", Key="signed/ä b+c")
    body = b"a plan"
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    c.delete_object(**key)
    url = c.generate_presigned_url("put_object", Params=dict(key, ChecksumSHA256=digest, IfNoneMatch="*", ContentLength=len(body)), ExpiresIn=300)
    names = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)["X-Amz-SignedHeaders"][0]
    same("signed", names, "content-length;host;if-none-match;x-amz-checksum-sha256")
    held = dict(x_amz_checksum_sha256=digest, If_None_Match="*")
    same("other bytes", send("PUT", url, b"a plot", **held)[0], 400)
    same("more bytes", send("PUT", url, b"a plan!", **held)[0], 403)
    same("no condition", send("PUT", url, body, x_amz_checksum_sha256=digest)[0], 403)
    same("sent", send("PUT", url, body, **held)[0], 200)
    same("sent again", send("PUT", url, body, **held)[0], 412)
    same("fetched", send("GET", c.generate_presigned_url("get_object", Params=key)), (200, body))
    same("late", send("GET", c.generate_presigned_url("get_object", Params=key, ExpiresIn=0).replace("Expires=0", "Expires=1"))[0], 403)


def s3():
    for c in client("s3"), client("s3", url=sys.argv[2], verify=False):
        c.create_bucket(Bucket="py-states")
        c.head_bucket(Bucket="py-states")
        for body in b"\x00one", io.BytesIO(b"\x00one"):
            c.put_object(Bucket="py-states", Key="a/ä b+c", Body=body)
            same("body", c.get_object(Bucket="py-states", Key="a/ä b+c")["Body"].read(), b"\x00one")
        held = dict(Bucket="py-states", Key="a/ä b+c", Body=b"", IfNoneMatch="*")
        same("exists", code(c.put_object, **held), "PreconditionFailed")
        same("encryption", c.head_object(Bucket="py-states", Key="a/ä b+c")["ServerSideEncryption"], "AES256")
        same("keys", [o["Key"] for o in c.list_objects_v2(Bucket="py-states", Prefix="a/")["Contents"]], ["a/ä b+c"])
        c.delete_object(Bucket="py-states", Key="a/ä b+c")
        same("nothing", code(c.get_object, Bucket="py-states", Key="a/ä b+c"), "NoSuchKey")
        presigned(c)
        same("by name", code(c.get_bucket_versioning, Bucket="py-states"), "NotImplemented")


def lambda_():
    c = client("lambda")
    sync = c.invoke(FunctionName="echo", Payload=b'{"a":1}')
    same("answer", (sync["StatusCode"], json.loads(sync["Payload"].read())), (200, {"a": 1}))
    event = c.invoke(FunctionName="arn:aws:lambda:us-east-1:123456789012:function:echo", InvocationType="Event", Payload=b"{}")
    same("event", (event["StatusCode"], event["Payload"].read()), (202, b""))
    same("no function", code(c.invoke, FunctionName="none"), "ResourceNotFoundException")
    same("busy", code(c.invoke, FunctionName="busy"), "TooManyRequestsException")


for test in (s3, sqs, secretsmanager, sts, lambda_):
    test()
print("ok")
