package secretsmanager_test

import (
	"errors"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssm "github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/smithy-go"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/awsim/moto"
	"github.com/dayfly-dev/dayfly/test/awsim/secretsmanager"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

func start(t *testing.T) (*awssm.Client, *secretsmanager.Service) {
	t.Helper()
	table, service := sigv4.NewTable(nil), &secretsmanager.Service{}
	server := httptest.NewServer(awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"secretsmanager": service}}))
	t.Cleanup(server.Close)
	return awssm.NewFromConfig(awsim.ClientConfig(server.URL, table.User("admin"))), service
}

func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var e smithy.APIError
	if !errors.As(err, &e) || e.ErrorCode() != code {
		t.Errorf("%s: got %v, want %s", what, err, code)
	}
}

// What both we and moto say of versions and their labels.
func TestStages_AsMotoHasThem(t *testing.T) {
	t.Run("ours", func(t *testing.T) {
		client, _ := start(t)
		stages(t, client)
	})
	t.Run("moto", func(t *testing.T) {
		if testing.Short() {
			t.Skip("skipped by -short: it starts moto_server")
		}
		stages(t, awssm.NewFromConfig(moto.Start(t)))
	})
}

func stages(t *testing.T, client *awssm.Client) {
	t.Helper()
	ctx := t.Context()
	made, err := client.CreateSecret(ctx, &awssm.CreateSecretInput{Name: aws.String("team/token"), SecretString: aws.String("one")})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(*made.ARN, "arn:aws:secretsmanager:us-east-1:123456789012:secret:team/token-") {
		t.Errorf("got the ARN %s", *made.ARN)
	}
	second, err := client.PutSecretValue(ctx, &awssm.PutSecretValueInput{SecretId: made.ARN, SecretString: aws.String("two")})
	if err != nil {
		t.Fatal(err)
	}
	pending, err := client.PutSecretValue(ctx, &awssm.PutSecretValueInput{SecretId: made.ARN, SecretString: aws.String("three"), VersionStages: []string{"AWSPENDING"}})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want map[string]string) {
		t.Helper()
		for stage, value := range want {
			got, err := client.GetSecretValue(ctx, &awssm.GetSecretValueInput{SecretId: made.ARN, VersionStage: &stage})
			if err != nil || aws.ToString(got.SecretString) != value || !slices.Contains(got.VersionStages, stage) {
				t.Errorf("%s, %s: got %+v, %v; want %q", when, stage, got, err, value)
			}
		}
	}
	expect("before", map[string]string{"AWSCURRENT": "two", "AWSPREVIOUS": "one", "AWSPENDING": "three"})
	_, err = client.UpdateSecretVersionStage(ctx, &awssm.UpdateSecretVersionStageInput{SecretId: made.ARN, VersionStage: aws.String("AWSCURRENT"), MoveToVersionId: pending.VersionId, RemoveFromVersionId: second.VersionId})
	if err != nil {
		t.Fatal(err)
	}
	expect("after", map[string]string{"AWSCURRENT": "three", "AWSPREVIOUS": "two"})
	byID, err := client.GetSecretValue(ctx, &awssm.GetSecretValueInput{SecretId: aws.String("team/token"), VersionId: second.VersionId})
	if err != nil || *byID.SecretString != "two" {
		t.Errorf("by id: got %+v, %v", byID, err)
	}
	_, err = client.GetSecretValue(ctx, &awssm.GetSecretValueInput{SecretId: made.ARN, VersionStage: aws.String("NONE")})
	wantCode(t, "no such label", err, "ResourceNotFoundException")
	_, err = client.GetSecretValue(ctx, &awssm.GetSecretValueInput{SecretId: aws.String("nothing")})
	wantCode(t, "no such secret", err, "ResourceNotFoundException")
	_, err = client.CreateSecret(ctx, &awssm.CreateSecretInput{Name: aws.String("team/token"), SecretString: aws.String("x")})
	wantCode(t, "a name that is taken", err, "ResourceExistsException")
	described, err := client.DescribeSecret(ctx, &awssm.DescribeSecretInput{SecretId: made.ARN})
	if err != nil || !slices.Contains(described.VersionIdsToStages[*pending.VersionId], "AWSCURRENT") || described.CreatedDate == nil || time.Since(*described.CreatedDate).Abs() > time.Hour {
		t.Errorf("described: got %+v, %v", described, err)
	}
	if _, err := client.DeleteSecret(ctx, &awssm.DeleteSecretInput{SecretId: made.ARN}); err != nil {
		t.Fatal(err)
	}
	_, err = client.GetSecretValue(ctx, &awssm.GetSecretValueInput{SecretId: made.ARN})
	wantCode(t, "marked for deletion", err, "InvalidRequestException")
	if _, err := client.RestoreSecret(ctx, &awssm.RestoreSecretInput{SecretId: made.ARN}); err != nil {
		t.Fatal(err)
	}
	expect("restored", map[string]string{"AWSCURRENT": "three"})
	if _, err := client.DeleteSecret(ctx, &awssm.DeleteSecretInput{SecretId: made.ARN, ForceDeleteWithoutRecovery: aws.Bool(true)}); err != nil {
		t.Fatal(err)
	}
	_, err = client.GetSecretValue(ctx, &awssm.GetSecretValueInput{SecretId: made.ARN})
	wantCode(t, "gone", err, "ResourceNotFoundException")
}

func TestTokens_MakeAVersionOnce(t *testing.T) {
	client, _ := start(t)
	token := strings.Repeat("t", 32)
	in := &awssm.CreateSecretInput{Name: aws.String("a"), SecretString: aws.String("one"), ClientRequestToken: &token}
	first, err := client.CreateSecret(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	again, err := client.CreateSecret(t.Context(), in)
	if err != nil || *again.ARN != *first.ARN || *again.VersionId != token {
		t.Errorf("the same again: got %+v, %v", again, err)
	}
	_, err = client.PutSecretValue(t.Context(), &awssm.PutSecretValueInput{SecretId: aws.String("a"), SecretString: aws.String("two"), ClientRequestToken: &token})
	wantCode(t, "another value", err, "ResourceExistsException")
	versions, err := client.ListSecretVersionIds(t.Context(), &awssm.ListSecretVersionIdsInput{SecretId: aws.String("a")})
	if err != nil || len(versions.Versions) != 1 || *versions.Versions[0].VersionId != token {
		t.Errorf("versions: got %+v, %v", versions, err)
	}
}

func TestDeletion_EndsWithItsWindow(t *testing.T) {
	client, service := start(t)
	now := time.Now()
	service.Now = func() time.Time { return now }
	name := aws.String("a")
	if _, err := client.CreateSecret(t.Context(), &awssm.CreateSecretInput{Name: name, SecretBinary: []byte{0, 1, 255}}); err != nil {
		t.Fatal(err)
	}
	if got, err := client.GetSecretValue(t.Context(), &awssm.GetSecretValueInput{SecretId: name}); err != nil || string(got.SecretBinary) != "\x00\x01\xff" || got.SecretString != nil {
		t.Errorf("binary: got %+v, %v", got, err)
	}
	_, err := client.DeleteSecret(t.Context(), &awssm.DeleteSecretInput{SecretId: name, RecoveryWindowInDays: aws.Int64(6)})
	wantCode(t, "a window of six days", err, "InvalidParameterException")
	if _, err := client.DeleteSecret(t.Context(), &awssm.DeleteSecretInput{SecretId: name, RecoveryWindowInDays: aws.Int64(7)}); err != nil {
		t.Fatal(err)
	}
	_, err = client.CreateSecret(t.Context(), &awssm.CreateSecretInput{Name: name})
	wantCode(t, "its name, before its end", err, "InvalidRequestException")
	now = now.AddDate(0, 0, 7)
	if _, err := client.CreateSecret(t.Context(), &awssm.CreateSecretInput{Name: name}); err != nil {
		t.Errorf("its name, after its end: %v", err)
	}
}
