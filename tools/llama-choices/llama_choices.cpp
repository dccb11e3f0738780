// Which experts llama.cpp chooses: a line for each layer and token, "layer,token,experts", as `cargo xtask synth-check --choices` writes them.
// It hands the ids in batches and reads the graph's tensors named ffn_moe_topk. See README.md beside it.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"

static const int BATCH = 64;
static const char TOPK[] = "ffn_moe_topk-";

struct Output {
    FILE * file;
    int first_token;
};

static bool on_tensor(ggml_tensor * tensor, bool ask, void * data) {
    const size_t n_prefix = strlen(TOPK);
    const bool is_wanted = strncmp(tensor->name, TOPK, n_prefix) == 0;
    if (ask || !is_wanted) {
        return is_wanted;
    }
    const Output * output = static_cast<const Output *>(data);
    const int layer = atoi(tensor->name + n_prefix);
    std::vector<int32_t> experts(tensor->ne[0]);
    for (int64_t row = 0; row < tensor->ne[1]; row++) {
        // A view of sorted scores, so that rows are not back to back.
        ggml_backend_tensor_get(tensor, experts.data(), row * tensor->nb[1], experts.size() * sizeof(int32_t));
        std::sort(experts.begin(), experts.end());
        fprintf(output->file, "%d,%d,", layer, output->first_token + (int) row);
        for (size_t i = 0; i < experts.size(); i++) {
            fprintf(output->file, "%s%d", i ? " " : "", experts[i]);
        }
        fputc('\n', output->file);
    }
    return true;
}

static int decode(llama_context * context, const std::vector<llama_token> & ids, Output & output) {
    const int n_ids = (int) ids.size();
    for (int first = 0; first < n_ids; first += BATCH) {
        const int n = std::min(BATCH, n_ids - first);
        llama_batch batch = llama_batch_init(n, 0, 1);
        batch.n_tokens = n;
        for (int i = 0; i < n; i++) {
            batch.token[i] = ids[first + i];
            batch.pos[i] = first + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            // Rows without logits would be dropped before the last layer's experts.
            batch.logits[i] = 1;
        }
        output.first_token = first;
        const int result = llama_decode(context, batch);
        llama_batch_free(batch);
        if (result != 0) {
            fprintf(stderr, "llama_decode: %d\n", result);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char ** argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: llama-choices MODEL.gguf IDS.txt OUT.csv\n");
        return 2;
    }
    std::vector<llama_token> ids;
    FILE * list = fopen(argv[2], "r");
    for (int id; list && fscanf(list, "%d", &id) == 1;) {
        ids.push_back(id);
    }
    Output output = { fopen(argv[3], "w"), 0 };
    if (ids.empty() || !output.file) {
        fprintf(stderr, "no ids in %s, or %s cannot be written\n", argv[2], argv[3]);
        return 1;
    }
    fclose(list);
    fprintf(output.file, "layer,token,experts\n");
    ggml_backend_load_all();
    llama_model_params model_params = llama_model_default_params();
    // Repacked weights would be a second copy in memory.
    model_params.use_extra_bufts = false;
    llama_model * model = llama_model_load_from_file(argv[1], model_params);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t) ids.size();
    params.n_batch = BATCH;
    params.cb_eval = on_tensor;
    params.cb_eval_user_data = &output;
    llama_context * context = model ? llama_init_from_model(model, params) : nullptr;
    const int result = context ? decode(context, ids, output) : 1;
    fclose(output.file);
    return result;
}
