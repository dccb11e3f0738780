// How fast llama.cpp takes a prompt and decodes a fixed sequence after it: one line, "prefill tokens/s, decode tokens/s".
// The same ids as `ouzel bench` decodes, so the same experts. See README.md beside it.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

static double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Runs ids [first, first + n); logits of the last one only.
static bool run(llama_context * context, const std::vector<llama_token> & ids, int first, int n) {
    llama_batch batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int i = 0; i < n; i++) {
        batch.token[i] = ids[first + i];
        batch.pos[i] = first + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = i + 1 == n;
    }
    const int result = llama_decode(context, batch);
    llama_batch_free(batch);
    if (result == 0) {
        llama_synchronize(context);
    }
    return result == 0;
}

int main(int argc, char ** argv) {
    if (argc != 6 || (strcmp(argv[5], "mmap") != 0 && strcmp(argv[5], "repack") != 0)) {
        fprintf(stderr, "usage: llama-speed MODEL.gguf IDS.txt PROMPT_TOKENS THREADS mmap|repack\n");
        return 2;
    }
    std::vector<llama_token> ids;
    FILE * list = fopen(argv[2], "r");
    for (int id; list && fscanf(list, "%d", &id) == 1;) {
        ids.push_back(id);
    }
    const int n_prompt = atoi(argv[3]);
    const int n_decode = (int) ids.size() - n_prompt;
    if (n_prompt < 1 || n_decode < 1) {
        fprintf(stderr, "%s has %zu ids; the prompt takes %d and some must be left\n", argv[2], ids.size(), n_prompt);
        return 1;
    }
    ggml_backend_load_all();
    llama_model_params model_params = llama_model_default_params();
    const bool repack = strcmp(argv[5], "repack") == 0;
    model_params.use_extra_bufts = repack;
    model_params.load_mode = repack ? LLAMA_LOAD_MODE_NONE : LLAMA_LOAD_MODE_MMAP;
    llama_model * model = llama_model_load_from_file(argv[1], model_params);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t) ids.size();
    params.n_batch = (uint32_t) n_prompt;
    params.n_ubatch = (uint32_t) n_prompt;
    params.n_threads = params.n_threads_batch = atoi(argv[4]);
    llama_context * context = model ? llama_init_from_model(model, params) : nullptr;
    if (!context) {
        return 1;
    }
    const double start = now();
    bool ok = run(context, ids, 0, n_prompt);
    const double prompt_end = now();
    for (int i = 0; ok && i < n_decode; i++) {
        ok = run(context, ids, n_prompt + i, 1);
    }
    if (ok) {
        printf("%.3f %.3f\n", n_prompt / (prompt_end - start), n_decode / (now() - prompt_end));
    }
    return ok ? 0 : 1;
}
