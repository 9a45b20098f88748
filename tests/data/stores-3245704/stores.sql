CREATE TABLE schema_versions (store text PRIMARY KEY, version integer NOT NULL);
CREATE TABLE turns (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message_id text NOT NULL UNIQUE,
            role text NOT NULL, content text NOT NULL, chat_id text, user_id text, user_name text,
            reply_to text
        );
CREATE INDEX turns_of_a_chat ON turns (chat_id, seq);
CREATE INDEX replies ON turns (reply_to, seq) WHERE reply_to IS NOT NULL;
CREATE TABLE graph_checkpoints (
            hitl_id text PRIMARY KEY, exchange text NOT NULL, flow text NOT NULL,
            stack text NOT NULL, created_at double precision NOT NULL,
            expires_at double precision NOT NULL, session_id text, question bytea NOT NULL,
            tape bytea NOT NULL, answer_site text NOT NULL, answer_key text NOT NULL,
            state text NOT NULL, answer bytea NOT NULL, digest text NOT NULL,
            owner text NOT NULL, leased_until double precision NOT NULL, user_id text,
            continued boolean NOT NULL
        );
CREATE INDEX pauses_of_a_session ON graph_checkpoints (session_id);
CREATE INDEX pauses_by_expiry ON graph_checkpoints (expires_at);
CREATE TABLE memories (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, memory_id text NOT NULL,
            user_id text NOT NULL, text text NOT NULL, session_id text, relation text,
            confidence double precision, terms tsvector NOT NULL
        );
CREATE UNIQUE INDEX memories_of_a_user ON memories (user_id, md5(text));
CREATE INDEX memories_of_a_session ON memories (session_id);
CREATE INDEX memory_terms ON memories USING gin (terms);
CREATE TABLE memory_makers (made_by text PRIMARY KEY);
CREATE TABLE memory_waiting (
            made_by text NOT NULL, user_id text NOT NULL,
            seq bigint NOT NULL REFERENCES memories ON DELETE CASCADE,
            PRIMARY KEY (made_by, user_id, seq)
        );
CREATE INDEX waiting_in_order ON memory_waiting (seq, made_by);
CREATE TABLE memory_vectors (
            seq bigint NOT NULL REFERENCES memories ON DELETE CASCADE, user_id text NOT NULL,
            session_id text, relation text, made_by text NOT NULL, vector halfvec NOT NULL,
            PRIMARY KEY (seq, made_by)
        );
ALTER TABLE memory_vectors ALTER COLUMN vector SET STORAGE MAIN;
CREATE INDEX vectors_of_a_user ON memory_vectors (made_by, user_id);
INSERT INTO "schema_versions" ("store", "version") OVERRIDING SYSTEM VALUE VALUES ('conversations', 1);
INSERT INTO "schema_versions" ("store", "version") OVERRIDING SYSTEM VALUE VALUES ('memory', 1);
INSERT INTO "schema_versions" ("store", "version") OVERRIDING SYSTEM VALUE VALUES ('memory_vectors', 1);
INSERT INTO "schema_versions" ("store", "version") OVERRIDING SYSTEM VALUE VALUES ('pauses', 1);
INSERT INTO "turns" ("seq", "message_id", "role", "content", "chat_id", "user_id", "user_name", "reply_to") OVERRIDING SYSTEM VALUE VALUES (1, 'm1', 'user', 'Where is 苏州?', 'c1', 'u1', 'Zoë', NULL);
INSERT INTO "turns" ("seq", "message_id", "role", "content", "chat_id", "user_id", "user_name", "reply_to") OVERRIDING SYSTEM VALUE VALUES (2, 'r1', 'assistant', 'West of Shanghai.', 'c1', NULL, NULL, 'm1');
INSERT INTO "turns" ("seq", "message_id", "role", "content", "chat_id", "user_id", "user_name", "reply_to") OVERRIDING SYSTEM VALUE VALUES (3, 'r1b', 'assistant', 'In Jiangsu.', 'c1', NULL, NULL, 'm1');
INSERT INTO "turns" ("seq", "message_id", "role", "content", "chat_id", "user_id", "user_name", "reply_to") OVERRIDING SYSTEM VALUE VALUES (4, 'm2', 'user', 'And the canal?', 'c1', 'u1', NULL, NULL);
INSERT INTO "turns" ("seq", "message_id", "role", "content", "chat_id", "user_id", "user_name", "reply_to") OVERRIDING SYSTEM VALUE VALUES (5, 'm3', 'user', 'Hello', 'c2', 'u2', NULL, NULL);
INSERT INTO "graph_checkpoints" ("hitl_id", "exchange", "flow", "stack", "created_at", "expires_at", "session_id", "question", "tape", "answer_site", "answer_key", "state", "answer", "digest", "owner", "leased_until", "user_id", "continued") OVERRIDING SYSTEM VALUE VALUES ('plain-open', 'exchange-plain-open', 'companion', 'legacy', 1790000000.0, 1790003600.0, 's-open', '\x7b22666f726d223a7b226669656c6473223a5b5d2c227469746c65223a22426f6f6b2069743f227d2c226b696e64223a22636f6e6669726d222c2273657373696f6e5f6964223a22732d6f70656e227d'::bytea, '\x7b2276223a322c2272657175657374223a7b7d2c22656e7472696573223a5b5d7d'::bytea, 'ask', 'key-plain-open', 'open', '\x6e756c6c'::bytea, '', '', 0.0, 'u1', false);
INSERT INTO "graph_checkpoints" ("hitl_id", "exchange", "flow", "stack", "created_at", "expires_at", "session_id", "question", "tape", "answer_site", "answer_key", "state", "answer", "digest", "owner", "leased_until", "user_id", "continued") OVERRIDING SYSTEM VALUE VALUES ('plain-answered', 'exchange-plain-answered', 'companion', 'legacy', 1790000000.0, 1790003600.0, 's-answered', '\x7b22666f726d223a7b226669656c6473223a5b5d2c227469746c65223a22426f6f6b2069743f227d2c226b696e64223a22636f6e6669726d222c2273657373696f6e5f6964223a22732d616e737765726564227d'::bytea, '\x7b2276223a322c2272657175657374223a7b7d2c22656e7472696573223a5b5d7d'::bytea, 'ask', 'key-plain-answered', 'answered', '\x7b22616374696f6e223a22617070726f7665222c2264617461223a7b227365617473223a327d7d'::bytea, '65232d4739a8d14192409e18e2c89127', '', 0.0, 'u1', false);
INSERT INTO "graph_checkpoints" ("hitl_id", "exchange", "flow", "stack", "created_at", "expires_at", "session_id", "question", "tape", "answer_site", "answer_key", "state", "answer", "digest", "owner", "leased_until", "user_id", "continued") OVERRIDING SYSTEM VALUE VALUES ('plain-claimed', 'exchange-plain-claimed', 'companion', 'legacy', 1790000000.0, 1790003600.0, 's-claimed', '\x7b22666f726d223a7b226669656c6473223a5b5d2c227469746c65223a22426f6f6b2069743f227d2c226b696e64223a22636f6e6669726d222c2273657373696f6e5f6964223a22732d636c61696d6564227d'::bytea, '\x7b2276223a322c2272657175657374223a7b7d2c22656e7472696573223a5b5d7d'::bytea, 'ask', 'key-plain-claimed', 'claimed', '\x7b22616374696f6e223a22617070726f7665222c2264617461223a7b227365617473223a327d7d'::bytea, '65232d4739a8d14192409e18e2c89127', 'owner-1', 1790000600.0, 'u1', false);
INSERT INTO "graph_checkpoints" ("hitl_id", "exchange", "flow", "stack", "created_at", "expires_at", "session_id", "question", "tape", "answer_site", "answer_key", "state", "answer", "digest", "owner", "leased_until", "user_id", "continued") OVERRIDING SYSTEM VALUE VALUES ('plain-continued', 'exchange-plain-continued', 'companion', 'legacy', 1790000000.0, 1790003600.0, 's-continued', '\x7b22666f726d223a7b226669656c6473223a5b5d2c227469746c65223a22426f6f6b2069743f227d2c226b696e64223a22636f6e6669726d222c2273657373696f6e5f6964223a22732d636f6e74696e756564227d'::bytea, '\x7b2276223a322c2272657175657374223a7b7d2c22656e7472696573223a5b315d7d'::bytea, 'ask', 'key-plain-continued', 'answered', '\x7b22616374696f6e223a22617070726f7665222c2264617461223a7b227365617473223a327d7d'::bytea, '65232d4739a8d14192409e18e2c89127', '', 0.0, 'u1', true);
INSERT INTO "graph_checkpoints" ("hitl_id", "exchange", "flow", "stack", "created_at", "expires_at", "session_id", "question", "tape", "answer_site", "answer_key", "state", "answer", "digest", "owner", "leased_until", "user_id", "continued") OVERRIDING SYSTEM VALUE VALUES ('plain-finished', 'exchange-plain-finished', 'companion', 'legacy', 1790000000.0, 1790003600.0, 's-finished', '\x6e756c6c'::bytea, '\x'::bytea, 'ask', 'key-plain-finished', 'finished', '\x6e756c6c'::bytea, '65232d4739a8d14192409e18e2c89127', '', 0.0, 'u1', false);
INSERT INTO "graph_checkpoints" ("hitl_id", "exchange", "flow", "stack", "created_at", "expires_at", "session_id", "question", "tape", "answer_site", "answer_key", "state", "answer", "digest", "owner", "leased_until", "user_id", "continued") OVERRIDING SYSTEM VALUE VALUES ('plain-expired', 'exchange-plain-expired', 'companion', 'legacy', 1790000000.0, 1790003600.0, 's-expired', '\x6e756c6c'::bytea, '\x'::bytea, 'ask', 'key-plain-expired', 'expired', '\x6e756c6c'::bytea, '', '', 0.0, 'u1', false);
INSERT INTO "graph_checkpoints" ("hitl_id", "exchange", "flow", "stack", "created_at", "expires_at", "session_id", "question", "tape", "answer_site", "answer_key", "state", "answer", "digest", "owner", "leased_until", "user_id", "continued") OVERRIDING SYSTEM VALUE VALUES ('sealed-answered', 'exchange-sealed-answered', 'companion', 'legacy', 1790000000.0, 1790003600.0, 's-sealed', '\x6375746f7665720189061aadc65160586957e4f628ad00b7ddca931e9364475e15d3b5def9e30a17bbc342cb76f0d5625bbadcce19a58ce4b35c4ba11e5b786a288b95b8070f2ff2f0be2bb66d6f5f9dcb8c178cb93c72247e1e26bc39ecfef942aac75fba779a60b21e2acdf41a74511b1224cf3b68062047e09e101bef'::bytea, '\x6375746f7665720189061aadc6516058a16f86de0f88dfbc280207663daa899909fe00cdf9775dca2dc2634eb73b7994d7f5e09f0bd26606a9309fddb580c23f953362d942f227da9369a6fc41'::bytea, 'ask', 'key-sealed-answered', 'answered', '\x6375746f7665720189061aadc65160582d718d13f441e80787967580eed1eed9ec13f7f72ba453a0abe1eb992a01c35bd2e4fb0efba2de6fd7106e6215c6eb613922b42813f76f17d714ae1d61589ee7ba21b5'::bytea, '6375746f7665720189061aadc651605824a5aee480852d2cd2b834aefdf4e299110b0d544c5ea74db04005c5226f82f9b45231bb87a5166e853de189e5b47a94ccc312964508137a8ab69d06', '', 0.0, 'u1', false);
INSERT INTO "memories" ("seq", "memory_id", "user_id", "text", "session_id", "relation", "confidence", "terms") OVERRIDING SYSTEM VALUE VALUES (1, 'e1', 'u1', 'likes jasmine tea from 苏州', 'c1', 'preference', 0.9, '''from'' ''jasmine'' ''likes'' ''tea'' ''州'' ''苏'' ''苏州''');
INSERT INTO "memories" ("seq", "memory_id", "user_id", "text", "session_id", "relation", "confidence", "terms") OVERRIDING SYSTEM VALUE VALUES (2, 'e2', 'u1', 'has a sister in Nanjing', 'c0', NULL, NULL, '''a'' ''has'' ''in'' ''nanjing'' ''sister''');
INSERT INTO "memories" ("seq", "memory_id", "user_id", "text", "session_id", "relation", "confidence", "terms") OVERRIDING SYSTEM VALUE VALUES (3, 'e3', 'u2', 'plays the cello', NULL, 'hobby', NULL, '''cello'' ''plays'' ''the''');
INSERT INTO "memory_makers" ("made_by") OVERRIDING SYSTEM VALUE VALUES ('hashed/16');
INSERT INTO "memory_vectors" ("seq", "user_id", "session_id", "relation", "made_by", "vector") OVERRIDING SYSTEM VALUE VALUES (1, 'u1', 'c1', 'preference', 'hashed/16', '[0.14624023,0.36572266,0.36572266,0.21936035,0.29248047,0.4387207,0.07312012,0.21936035,0.21936035,0.07312012,0.07312012,0.29248047,0.07312012,0.29248047,0.21936035,0.21936035]');
INSERT INTO "memory_vectors" ("seq", "user_id", "session_id", "relation", "made_by", "vector") OVERRIDING SYSTEM VALUE VALUES (2, 'u1', 'c0', NULL, 'hashed/16', '[0.1661377,0.24914551,0.1661377,0.4152832,0,0.24914551,0.1661377,0.24914551,0.1661377,0.08306885,0.24914551,0.1661377,0.24914551,0.24914551,0.49829102,0.24914551]');
INSERT INTO "memory_vectors" ("seq", "user_id", "session_id", "relation", "made_by", "vector") OVERRIDING SYSTEM VALUE VALUES (3, 'u2', NULL, 'hobby', 'hashed/16', '[0.21447754,0.42895508,0.10723877,0,0.10723877,0.10723877,0.3215332,0.5361328,0.21447754,0,0.42895508,0,0.21447754,0.10723877,0.10723877,0.21447754]');
SELECT setval(pg_get_serial_sequence('turns', 'seq'), max(seq)) FROM turns;
SELECT setval(pg_get_serial_sequence('memories', 'seq'), max(seq)) FROM memories;
