import{b as r}from"./chunk-UGM6466D.js";import{m18 as e}from"./core-A6AELMNS.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
