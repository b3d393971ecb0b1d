package record

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/blob"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// Chunk is a piece of the log of an attempt. It is made once and never changed, and the next one begins where it
// ends.
type Chunk struct {
	First int64 // number of its first line
	Next  int64 // number of the line that comes after it
	Bytes int64 // of the log so far, that count against the quota
	Full  bool  // the log takes no more lines
	// Lines are its lines as PackLines makes them. They are empty if they lie in the blob of that name.
	Lines []byte
	Blob  string
}

// The forms of a chunk, by the first byte of its record.
const (
	formLines = 1 // its lines are in the record
	formBlob  = 2 // the record has the name of their blob
)

// Bounds of a chunk.
const (
	MaxChunkLines = 1000     // as many as a page has, so that a page reads little more than it shows
	MaxChunk      = 64 << 10 // bytes of its packed lines, if it has more than one
	maxUnpacked   = 2 << 20  // bytes of the lines before they are packed: more than one call may send
)

// BlobName names the blob of packed lines. The name follows from the content, so a repeat writes the same blob. It
// begins with the days for which the log is kept, because a lifecycle rule of S3 can only match a prefix.
func BlobName(days int, id string, attempt int, lines []byte) string {
	sum := sha256.Sum256(lines)
	return fmt.Sprintf("logs/%d/%s/%04d/%s", days, id, attempt, hex.EncodeToString(sum[:]))
}

// BlobDirs are the prefixes that the names of a run's blobs may have.
func BlobDirs(id string) (all []string) {
	for _, days := range api.LogRetentions() {
		all = append(all, fmt.Sprintf("logs/%d/%s", days, id))
	}
	return all
}

// BlobAfter is how many bytes of a log lie in the records. The lines after them lie in blobs.
const BlobAfter = 1 << 20

// Encode makes the record of a chunk of an attempt.
func (c Chunk) Encode(id string, attempt int) store.Record {
	b := []byte{formLines}
	if c.Blob != "" {
		b[0] = formBlob
	}
	full := byte(0)
	if c.Full {
		full = 1
	}
	b = append(binary.AppendUvarint(binary.AppendUvarint(b, uint64(c.Next-c.First)), uint64(c.Bytes)), full) //nolint:gosec // not negative
	if c.Blob != "" {
		b = append(b, c.Blob...)
	}
	return store.Record{Key: LogKey(id, attempt, c.First), Value: append(b, c.Lines...)}
}

var errChunk = errors.New("this is not a chunk of a log")

// DecodeChunk reads the record of a chunk.
func DecodeChunk(r store.Record) (c Chunk, err error) {
	prefix := strings.LastIndexByte(r.Key.Sort, '/') + 1
	if _, err := fmt.Sscanf(r.Key.Sort[prefix:], "%d", &c.First); err != nil {
		return c, fmt.Errorf("record %s: %w", r.Key, errChunk)
	}
	if err := c.decode(r.Value); err != nil {
		return Chunk{}, fmt.Errorf("record %s: %w", r.Key, err)
	}
	return c, nil
}

func (c *Chunk) decode(value []byte) error {
	if len(value) == 0 {
		return errChunk
	}
	form, b := value[0], value[1:]
	lines, n := binary.Uvarint(b)
	if n <= 0 || lines > 1e12 {
		return errChunk
	}
	b = b[n:]
	size, n := binary.Uvarint(b)
	if n <= 0 || size > 1<<50 || n == len(b) {
		return errChunk
	}
	c.Next, c.Bytes, c.Full = c.First+int64(lines), int64(size), b[n] == 1 //nolint:gosec // bounded above
	b = b[n+1:]
	switch form {
	case formLines:
		c.Lines = b
		return nil
	case formBlob:
		c.Blob = string(b)
		return blob.CheckName(c.Blob)
	}
	return errChunk
}

// Packed lines are one stream of flate that begins with the dictionary below. In it are: the number of lines; their
// times in Unix milliseconds, the first as it is and each other one as its distance; for each run of lines of one
// step its length and the step's name; and the texts. A text ends with one of two bytes that no valid text has.
const (
	endOfLine  = 0xff
	endOfPiece = 0xfe // the line goes on in the next one
)

// dictionary has phrases that are frequent in the logs of engines, the most frequent at the end. It makes small
// chunks a third smaller. It belongs to the form of a chunk: another dictionary needs a form of its own.
var dictionary = []byte(strings.ReplaceAll(`Initializing the backend...
Initializing provider plugins...
- Installing hashicorp/aws v
- Installed hashicorp/aws v (signed by HashiCorp)
azurerm_resource_group.azurerm_virtual_network.azurerm_subnet.azurerm_network_security_group.
azurerm_storage_account.azurerm_key_vault_secret.azurerm_role_assignment.azurerm_linux_virtual_machine.
azurerm_kubernetes_cluster.google_project_service.google_project_iam_member.google_service_account.
google_compute_instance.google_compute_firewall.google_compute_subnetwork.google_storage_bucket.
google_container_node_pool.kubernetes_namespace.kubernetes_secret.kubernetes_config_map.helm_release.
github_repository.null_resource.terraform_data.random_password.random_id.tls_private_key.aws_sns_topic.
aws_sqs_queue.aws_dynamodb_table.aws_ecs_service.aws_ecs_task_definition.aws_ecr_repository.aws_eks_node_group.
aws_kms_alias.aws_kms_key.aws_ssm_parameter.aws_secretsmanager_secret_version.aws_acm_certificate_validation.
aws_cloudfront_distribution.aws_api_gateway_method.aws_lambda_permission.aws_lambda_function.
aws_cloudwatch_event_rule.aws_cloudwatch_metric_alarm.aws_cloudwatch_log_group.aws_autoscaling_group.
aws_launch_template.aws_lb_listener_rule.aws_lb_target_group.aws_nat_gateway.aws_internet_gateway.aws_eip.
aws_vpc_endpoint.aws_network_acl.aws_db_subnet_group.aws_rds_cluster.aws_db_instance.
aws_elasticache_replication_group.aws_s3_bucket_public_access_block.aws_s3_bucket_policy.aws_s3_bucket.
aws_iam_policy_document.aws_iam_instance_profile.aws_iam_policy.aws_iam_role_policy_attachment.aws_iam_role.
aws_route53_zone.aws_route53_record.aws_route_table_association.aws_route_table.aws_route.
aws_security_group_rule.aws_security_group.aws_subnet.aws_vpc.aws_instance
.this[0] .main .default .private["eu-west-1a"] .public[1] module.vpc.module.network.data.: Destroying... [id=: Destruction complete after : Modifying... [id=: Modifications complete after : Creating...
: Creation complete after 1s [id=arn:aws:iam::eu-central-1us-east-1sg-rtb-subnet-vpc-: Reading...
: Read complete after 0s [id=: Still destroying... [id=, 1m20s elapsed]
: Still creating... [00m10s elapsed]
: Refreshing state... [id= will be destroyed
  # (depends on a resource or a module with changes pending)
  # data. will be read during apply
  # (config refers to values not yet known)
 must be replaced
-/+ resource " will be updated in-place
  ~ resource "  - resource " will be created
  + resource "aws_" "this" {
        # (10 unchanged attributes hidden)
        # (1 unchanged block hidden)
      - description                    = " -> null
      ~ tags_all                       = {
      + policy                         = jsonencode(
      + name                           = "
      + arn                            = (known after apply)
      + id                             = (known after apply)
      + tags                           = {
          + "Name" = "
        }
      + ingress                        = [
          + {
              + cidr_blocks      = [
                  + "0.0.0.0/0",
                ]
            },
        ] -> (known after apply) # forces replacement
      + true false null
    }

Plan: 1 to add, 0 to change, 0 to destroy.
[dayfly] $ terraform plan apply init
`, "\n", string([]byte{endOfLine})))

var packers = sync.Pool{New: func() any {
	w, err := flate.NewWriterDict(nil, flate.BestCompression, dictionary)
	if err != nil {
		panic(err) // the level is one of its own
	}
	return w
}}

// PackLines compresses lines.
func PackLines(lines []api.LogLine) []byte {
	raw := binary.AppendUvarint(nil, uint64(len(lines)))
	last := int64(0)
	for _, l := range lines {
		at := l.At.UnixMilli()
		raw, last = binary.AppendVarint(raw, at-last), at
	}
	for i := 0; i < len(lines); {
		n := 1
		for i+n < len(lines) && lines[i+n].Step == lines[i].Step {
			n++
		}
		step := text.Head(lines[i].Step, api.MaxLogStep)
		raw = append(binary.AppendUvarint(binary.AppendUvarint(raw, uint64(n)), uint64(len(step))), step...)
		i += n
	}
	for _, l := range lines {
		raw = append(raw, strings.ToValidUTF8(l.Text, "?")...)
		if l.More {
			raw = append(raw, endOfPiece)
		} else {
			raw = append(raw, endOfLine)
		}
	}
	var out bytes.Buffer
	w := packers.Get().(*flate.Writer) //nolint:forcetypeassert // it holds nothing else
	defer packers.Put(w)
	w.Reset(&out)
	_, _ = w.Write(raw) // into memory: it cannot fail
	_ = w.Close()
	return out.Bytes()
}

var errPacked = errors.New("these are not the lines of a chunk")

// The times that have a text.
var firstTime, lastTime = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMilli()

// UnpackLines reverses PackLines. It reads no more than the bounds allow.
func UnpackLines(packed []byte) ([]api.LogLine, error) {
	raw, err := io.ReadAll(io.LimitReader(flate.NewReaderDict(bytes.NewReader(packed), dictionary), maxUnpacked+1))
	if err != nil || len(raw) > maxUnpacked {
		return nil, errors.Join(errPacked, err)
	}
	bad := false
	number := func() uint64 {
		v, n := binary.Uvarint(raw)
		if n <= 0 {
			bad, n = true, 0
		}
		raw = raw[n:]
		return v
	}
	count := number()
	if bad || count > uint64(len(raw)) { // a line takes more than a byte
		return nil, errPacked
	}
	lines := make([]api.LogLine, count)
	if raw, err = unpackTimes(lines, raw); err != nil {
		return nil, err
	}
	for i := uint64(0); i < count; {
		n, size := number(), number()
		if bad || n == 0 || n > count-i || size > api.MaxLogStep || size > uint64(len(raw)) {
			return nil, errPacked
		}
		step := strings.ToValidUTF8(string(raw[:size]), "?")
		for ; n > 0; i, n = i+1, n-1 {
			lines[i].Step = step
		}
		raw = raw[size:]
	}
	if err := unpackTexts(lines, raw); err != nil {
		return nil, err
	}
	return lines, nil
}

// unpackTimes reads the times of lines, and returns the rest.
func unpackTimes(lines []api.LogLine, raw []byte) (rest []byte, err error) {
	at := int64(0)
	for i := range lines {
		d, n := binary.Varint(raw)
		if n <= 0 || d < firstTime-lastTime || d > lastTime-firstTime || at+d < firstTime || at+d > lastTime {
			return nil, errPacked
		}
		at, raw = at+d, raw[n:]
		lines[i].At = time.UnixMilli(at).UTC()
	}
	return raw, nil
}

// unpackTexts reads the texts of lines, which end the packed lines.
func unpackTexts(lines []api.LogLine, raw []byte) error {
	for i := range lines {
		end := bytes.IndexByte(raw, endOfLine)
		if end < 0 {
			end = len(raw)
		}
		if piece := bytes.IndexByte(raw[:end], endOfPiece); piece >= 0 {
			end, lines[i].More = piece, true
		} else if end == len(raw) {
			return errPacked
		}
		lines[i].Text, raw = strings.ToValidUTF8(string(raw[:end]), "?"), raw[end+1:]
	}
	if len(raw) > 0 {
		return errPacked
	}
	return nil
}
